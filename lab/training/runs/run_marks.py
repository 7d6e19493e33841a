"""The vertical lines on a run's charts: where checkpoints were written, the policy was saved, attempts took over, people were alerted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from lab.lib.registry import Registry
from lab.teams.accounts.models import User
from lab.training.runs.models import Run


class RunMark(TypedDict):
    """``kind`` chooses the line; ``label`` is a phrase with the step in it."""

    step: int
    kind: str
    label: str


# Rooms above this one put in marks of their own: what ``viewer`` may know of the run.
SOURCES: Registry[Callable[[Run, User], list[RunMark]]] = Registry("source of marks")


def list_run_marks(run: Run, viewer: User) -> list[RunMark]:
    marks: list[RunMark] = []
    for attempt in run.attempts.all():
        if attempt.number > 1:
            marks.append({"step": attempt.from_step, "kind": "resume", "label": f"attempt {attempt.number} resumes from step {attempt.from_step}"})
    for checkpoint in run.checkpoints.order_by("step", "attempt"):
        kind, what = ("saved", "policy saved") if checkpoint.final else ("checkpoint", "checkpoint")
        marks.append({"step": checkpoint.step, "kind": kind, "label": f"{what} at step {checkpoint.step}"})
    return [*marks, *(mark for source in SOURCES.values() for mark in source(run, viewer))]
