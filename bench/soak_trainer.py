"""The soak's trainer without a model, in the place of ``python -m trainers run <run folder>/run.json`` (``bench/soak_site``): it keeps the contract
of docs/run-files.md and reads the number of its steps from a real spec. SOAK_PACE: seconds a step.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.lab.supervisor.trainer_program import train
from trainers.contract import spool

LOCKED = 4
ROOM = 1 << 20  # bytes


def run_trainer(run_file: str) -> int:
    """Trains in the folder of the file; the exit code of the contract."""
    folder, training = Path(run_file).parent, json.loads(Path(run_file).read_text())["training"]
    lock = (folder / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return LOCKED
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    spec = {"steps": training["max_steps"], "pace": float(os.environ.get("SOAK_PACE", "0.05")), "save_every": 10}
    attempt = spool.last_attempt(folder / spool.SPOOL) + 1
    with spool.SpoolWriter(folder / spool.SPOOL) as writer:
        try:
            return int(train(folder, spec, attempt, writer))
        except OSError as error:
            if error.errno in spool.FULL:
                wait_for_room(folder)
            raise


def wait_for_room(folder: Path) -> None:
    """As a real trainer does before it says in the spool why it ended: its log lies on the same disk."""
    while shutil.disk_usage(folder).free < ROOM:
        time.sleep(0.2)
