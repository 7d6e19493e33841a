"""How an attempt ended, in words, from its exit code, its last event and what was asked of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from lab.runs.models import Status
from lab.supervisor.logs import last_words

FINISHED, FAILED, REFUSED, STOPPED, LOCKED = 0, 1, 2, 3, 4  # exit codes of a trainer


@dataclass(frozen=True)
class Ending:
    """What is known when a trainer has ended. ``code`` is None when it was not our child, negative when a signal ended it."""

    code: int | None
    outcome: str  # of the attempt's last event; empty when it had none
    error: str
    log: Path
    killed: str = ""  # why we killed it, if we did
    peak_memory: float = 0.0  # bytes


def judge(ending: Ending) -> tuple[Status, str]:
    """The run's status and its reason."""
    code, outcome = ending.code, ending.outcome
    if outcome == "finished" and code in (None, FINISHED):
        return Status.FINISHED, ""
    if code == FINISHED and not outcome:
        return Status.FINISHED, ""
    if ending.killed:
        return Status.STOPPED, ending.killed
    if outcome == "stopped" or code == STOPPED:
        return Status.STOPPED, ""
    return Status.FAILED, failure(ending)


def failure(ending: Ending) -> str:
    if ending.error:
        return ending.error
    said = last_words(ending.log, 8 if ending.code == REFUSED else 1)
    if ending.code == REFUSED:
        return f"the specification was refused: {said}"
    if ending.code is None:
        return "the trainer ended without saying why" + (f"; its last line was: {said}" if said else "")
    if ending.code < 0:
        return by_signal(-ending.code, ending.peak_memory) + (f"; its last line was: {said}" if said else "")
    return said or f"the trainer ended with exit code {ending.code} and said nothing"


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
