"""Property tests draw the same examples every time, without a deadline on a busy machine. HYPOTHESIS_PROFILE=default looks for new ones."""

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
