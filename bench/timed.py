"""The lab's web application, with how long each answer took written to the file that TIMES names: a line "path milliseconds" an answer.

The clock runs from when the request reaches the application until its answer has been handed back: waiting for a thread and for a database
connection is in it, waiting in the kernel for a process that is busy is not.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from lab.asgi import application as lab

times = Path(os.environ["TIMES"]).open("a", buffering=1)  # noqa: SIM115 (open as long as the process)


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return await lab(scope, receive, send)
    start = time.perf_counter()
    await lab(scope, receive, send)
    times.write(f"{scope['path']} {1000 * (time.perf_counter() - start):.3f}\n")
