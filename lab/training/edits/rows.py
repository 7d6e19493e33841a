"""Edits as a page lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.training.edits.forking import ForkPlan, plan_fork
from lab.training.edits.models import EditState, RunEdit, RunFork
from lab.training.edits.wording import EditedSetting, describe_edit_state, list_edited_settings, name_author, summarize_edit
from lab.training.runs.models import Run


@dataclass(frozen=True)
class EditRow:
    edit: RunEdit
    author: str
    settings: list[EditedSetting]
    state: str
    fork: ForkPlan | None

    @property
    def is_pending(self) -> bool:
        return self.edit.state == EditState.PENDING


def build_edit_rows(run: Run) -> list[EditRow]:
    """Oldest first."""
    edits = list(run.edits.select_related("author"))
    for edit in edits:
        edit.run = run
    return [EditRow(edit, name_author(edit), list_edited_settings(edit), describe_edit_state(edit), plan_fork(edit)) for edit in edits]


def describe_fork(run: Run) -> RunFork | None:
    """Where the run was forked from; None for any other run."""
    return RunFork.objects.filter(run=run).select_related("edit__run", "edit__author").first()


def summarize_run_edits(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Id of each run that was edited -> its edits that hold, a line each."""
    found: dict[str, list[str]] = {}
    for edit in RunEdit.objects.filter(run__in=runs).exclude(steps={}).order_by("pk"):
        found.setdefault(str(edit.run_id), []).append(summarize_edit(edit))
    return found
