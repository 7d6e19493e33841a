"""The vertical lines where an edit began to hold."""

from __future__ import annotations

from lab.teams.accounts.models import User
from lab.training.edits.models import RunEdit
from lab.training.edits.wording import list_edited_settings, name_author
from lab.training.runs.models import Run
from lab.training.runs.run_marks import RunMark

MOST = 200  # of one run; the newest


def list_edit_marks(run: Run, viewer: User) -> list[RunMark]:
    """One for each step from which something of an edit holds."""
    edits = list(RunEdit.objects.filter(run=run).exclude(steps={}).select_related("author").order_by("-pk")[:MOST])
    marks: list[RunMark] = []
    for edit in reversed(edits):
        for step in sorted(set(edit.steps.values())):
            words = ", ".join(setting.words for setting in list_edited_settings(edit) if setting.step == step)
            why = f" ({edit.reason})" if edit.reason else ""
            marks.append({"step": step, "kind": "edit", "label": f"edit by {name_author(edit)} from step {step}: {words}{why}"})
    return marks
