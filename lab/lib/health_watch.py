"""A container's health check that has consequences: ``python -m lab.lib.health_watch URL --end-when-dead PID``.

Docker marks a container unhealthy and leaves it running. Here the check itself counts how often in a row nothing answered, then asks the
container's first process to end, and kills what does not; the restart policy does the rest. An answer that reports a problem (the database is
away) is unhealthy but alive: ending the process would mend nothing, and is not counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

from lab.lib.processes import kill_tree

ASK_AFTER = 6  # checks in a row without an answer: SIGTERM
KILL_AFTER = 12  # SIGKILL
TIMEOUT = 4.0  # seconds


def note_check(alive: bool, pid: int) -> None:
    """Counts checks in a row that found nothing alive, and ends process ``pid`` (1: what runs below it) when there were too many."""
    counter = Path(tempfile.gettempdir()) / f"policy-lab-dead-{os.getuid()}-{pid}"
    if alive:
        counter.unlink(missing_ok=True)
        return
    with counter.open("a") as file:
        file.write(".")
    dead = counter.stat().st_size
    if dead >= KILL_AFTER:
        counter.unlink(missing_ok=True)
        kill_tree(pid, keep_root=pid == 1)  # the kernel protects the first process of a container; it ends with its child
    elif dead >= ASK_AFTER:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def fetch_health_status(url: str) -> int | None:
    """The status of the answer; None when there is none in time."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Exit code 0 when the address answers 200, else 1.")
    parser.add_argument("url")
    parser.add_argument("--end-when-dead", type=int, metavar="PID")
    given = parser.parse_args()
    status = fetch_health_status(given.url)
    if given.end_when_dead:
        note_check(status is not None, given.end_when_dead)
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
