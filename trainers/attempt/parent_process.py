"""A process that ends with the one that started it. Imports nothing slow: it is the first thing that such a process does."""

import ctypes
import os
import signal
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """SIGKILL when the process ``parent`` ends, however it ends, also if it has already. Linux only; elsewhere nothing happens. SIGTERM ends this
    process by SystemExit, so that what it has open is closed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(f"ended by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
