"""``python -m policy_lab``."""

import sys

from policy_lab.commands import main

if __name__ == "__main__":
    sys.exit(main())
