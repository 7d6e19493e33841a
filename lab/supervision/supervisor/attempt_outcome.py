"""How an attempt ended, in words, from its exit code, its last event and what was asked of it."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from lab.supervision.supervisor.logs import last_words
from lab.training.runs.models import Status
from trainers.contract.events import AnyEvent, AttemptFinished
from trainers.contract.spool import parse_spool_line

FINISHED, FAILED, REFUSED, STOPPED, LOCKED = 0, 1, 2, 3, 4  # exit codes of a trainer
TAIL = 1 << 16
LEAST_FREE = 1 << 20  # bytes; with less a trainer cannot even write down why it ends


@dataclass(frozen=True)
class AttemptEnding:
    """What is known when a trainer has ended. ``code`` is None when it was not our child, negative when a signal ended it."""

    code: int | None
    last_event: AttemptFinished | None  # the attempt's last event
    log: Path
    killed: str = ""  # why we killed it, if we did
    stop_requested: bool = False  # whether somebody asked it to stop
    peak_memory: float = 0.0  # bytes
    is_disk_full: bool = False  # of the run folder


def judge_outcome(ending: AttemptEnding) -> tuple[Status, str]:
    """The run's status and its reason."""
    code, outcome = ending.code, ending.last_event.outcome if ending.last_event else ""
    if outcome == "finished" and code in (None, FINISHED):
        return Status.FINISHED, ""
    if ending.killed:
        return Status.STOPPED, ending.killed
    if outcome == "stopped" or code == STOPPED:
        return Status.STOPPED, "" if ending.stop_requested else "the trainer stopped by itself: its time limit, or a signal from outside"
    full = "; the disk of the run folder is full: make room, then resume the run" if ending.is_disk_full else ""
    return Status.FAILED, explain_failure(ending) + full


def explain_failure(ending: AttemptEnding) -> str:
    if ending.last_event and ending.last_event.error:
        return ending.last_event.error
    words = last_words(ending.log, 8 if ending.code == REFUSED else 1)
    if ending.code == REFUSED:
        return f"the specification was refused: {words}"
    last_line = f"; its last line was: {words}" if words else ""
    if ending.code is None:
        return f"the trainer ended without saying why{last_line}"
    if ending.code < 0:
        return by_signal(-ending.code, ending.peak_memory) + last_line
    if ending.code == FINISHED:
        return f"the trainer ended with exit code 0 without reporting that the run has finished{last_line}"
    return words or f"the trainer ended with exit code {ending.code} and said nothing"


def last_event(path: Path) -> AnyEvent | None:
    """The event on the last whole line of a spool, if that line is short, as an attempt's last one is."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return None
    return parse_spool_line(lines[-1], 0).event if lines else None


def by_signal(number: int, peak_memory: float) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    words = f"the trainer was killed by {name}"
    if number == signal.SIGKILL:
        words += ", most often because the machine ran out of memory"
        if peak_memory:
            words += f" (it was seen using {peak_memory / 2**30:.1f} GiB): try a smaller batch or shorter completions"
    elif number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
        words += ", a crash in native code"
    return words


def is_disk_full(folder: Path) -> bool:
    """Whether a trainer cannot write there; False where that cannot be told."""
    try:
        return shutil.disk_usage(folder).free < LEAST_FREE
    except OSError:
        return False
