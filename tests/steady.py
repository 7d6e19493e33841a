"""Property tests draw the same examples every time, without a deadline on a busy machine.

Fifty of them, unless a test says otherwise: more of the same find nothing that the first did not. HYPOTHESIS_PROFILE=default looks for new ones.
"""

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
