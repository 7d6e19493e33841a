"""Why a run cannot be resumed although its status allows it, for rooms that ``runs`` may not know: they add to ``OBJECTIONS``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.training.runs.models import Run

OBJECTIONS: list[Callable[[Run], str]] = []  # each: one sentence for a person, or nothing


def find_resume_objection(run: Run) -> str:
    return next((words for words in (one(run) for one in OBJECTIONS) if words), "")
