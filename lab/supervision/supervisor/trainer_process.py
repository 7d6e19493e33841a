"""The trainer as a process: started, found again, asked to stop, killed. It lives in its own session, so that nothing else dies with it
and everything it started dies with it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
from django.conf import settings

from lab.lib.child_environment import TRAINER, environment_for
from lab.lib.private_files import open_private_log
from trainers.contract.spec import RUN_FILE

LOCK, STOP = "lock", "stop"
KILL_SECONDS = 5.0  # for a killed process to be gone


def build_trainer_command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "trainers", "run", str(folder / RUN_FILE)]


class Trainer:
    """A trainer this process started."""

    adopted = False

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        # unbuffered, so that the log is as old as the last line printed
        environment = environment_for(TRAINER, PYTHONUNBUFFERED="1", TOKENIZERS_PARALLELISM="false")
        with open_private_log(log) as output:
            self.process = subprocess.Popen(
                argv,
                cwd=settings.BASE,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid: int | None = self.process.pid
        self.gone = False

    def alive(self) -> bool:
        return self.process.poll() is None

    def exit_code(self) -> int | None:
        return self.process.poll()

    def kill(self) -> None:
        """SIGKILL to the trainer and everything it started, also what outlived it; once, because later the number may be somebody else's."""
        if self.gone:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_SECONDS)
            self.gone = True


class AdoptedTrainer:
    """A trainer that a supervisor now dead has started (or a person): it holds the lock; how it ends is known only from the spool."""

    adopted = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = lock_holder(folder)

    def alive(self) -> bool:
        return is_locked(self.folder)

    def exit_code(self) -> int | None:
        return None

    def kill(self) -> None:
        """Kills the holder of the lock and its session. Does nothing when the holder is not on this machine."""
        pid = lock_holder(self.folder)
        if pid is None or not self.alive():
            return
        with suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(pid)
            if group == os.getpgid(0):
                os.kill(pid, signal.SIGKILL)
            else:
                os.killpg(group, signal.SIGKILL)


def is_locked(folder: Path) -> bool:
    """Whether a trainer lives in the folder. Must not be asked while one of ours is starting: the question takes the lock for a moment."""
    try:
        with (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def lock_holder(folder: Path) -> int | None:
    """The pid in the lock file, if it is a process of this machine that works in this folder."""
    try:
        pid = int((folder / LOCK).read_text().strip())
        words = psutil.Process(pid).cmdline()
    except (OSError, ValueError, psutil.Error):
        return None
    return pid if any(str(folder) in word for word in words) else None


def write_spec(folder: Path, spec: dict[str, Any]) -> None:
    """``run.json``, once: whole or not at all, and never changed."""
    target = folder / RUN_FILE
    if target.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{RUN_FILE}.{os.getpid()}")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n")
    os.replace(part, target)


def request_stop(folder: Path) -> None:
    (folder / STOP).touch()


def clear_stop(folder: Path) -> None:
    (folder / STOP).unlink(missing_ok=True)
