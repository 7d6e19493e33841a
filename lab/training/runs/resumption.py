"""Why a run cannot be resumed although its status allows it, for rooms that ``runs`` may not know: they register in ``OBJECTIONS``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lab.lib.registry import Registry

if TYPE_CHECKING:
    from lab.training.runs.models import Run

OBJECTIONS: Registry[Callable[[Run], str]] = Registry("objection")  # by room; each: one sentence for a person, or nothing


def find_resume_objection(run: Run) -> str:
    if run.archived_at:
        return "This run is archived. Unarchive it first."
    return next((words for words in (objection(run) for objection in OBJECTIONS.values()) if words), "")
