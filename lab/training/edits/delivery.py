"""Between the database and the run folder: requests to the trainer, and what the trainer reported about them."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from lab.lib.json_lines import append_json_lines
from lab.training.edits.models import EditState, RunEdit
from lab.training.runs.models import Run
from trainers.contract.edits import APPLIED, REQUESTS, WITHDRAWN, AppliedEdit, EditRequest
from trainers.contract.events import Edited


def send_run_edits(run: Run) -> int:
    """Appends new requests and withdrawals to the run folder and marks them; returns how many lines. The file first: a line that is there twice
    counts once. Raises OSError when the folder cannot be written to.
    """
    new = Q(state=EditState.PENDING, sent_at=None)
    taken_back = Q(withdrawn_at__isnull=False, withdrawal_sent=False, sent_at__isnull=False)
    waiting = RunEdit.objects.filter(new | taken_back, run=run)
    if not waiting.exists():
        return 0
    with transaction.atomic():
        edits = list(waiting.select_for_update(of=("self",)).order_by("pk"))
        requests = [
            EditRequest(key=edit.key, changes={}, withdrawn=True) if edit.sent_at else EditRequest(key=edit.key, changes=edit.changes)
            for edit in edits
        ]
        append_json_lines(run.folder / REQUESTS, [request.model_dump() for request in requests])
        for edit in edits:
            edit.withdrawal_sent, edit.sent_at = edit.sent_at is not None, edit.sent_at or timezone.now()
            edit.save(update_fields=["withdrawal_sent", "sent_at"])
    return len(edits)


def restore_edit_files(run: Run) -> None:
    """The record of what the trainer applied, and the requests that it has not, in a run folder that has neither: the run was trained, or forked, on
    another machine. Raises OSError.
    """
    edits = list(run.edits.order_by("pk"))
    if not (run.folder / APPLIED).exists() and (lines := list_applied_lines(edits)):
        append_json_lines(run.folder / APPLIED, [line.model_dump() for line in lines])
    if not (run.folder / REQUESTS).exists():
        run.edits.filter(state=EditState.PENDING).update(sent_at=None, withdrawal_sent=False)


def list_applied_lines(edits: Sequence[RunEdit]) -> list[AppliedEdit]:
    """As the trainer's own record says it, in the order of the steps they hold from."""
    lines = []
    for edit in edits:
        for step in sorted(set(edit.steps.values())):
            changes = {name: edit.changes[name] for name, at in edit.steps.items() if at == step}
            lines.append(AppliedEdit(key=edit.key, step=step, changes=changes))
    return sorted(lines, key=lambda line: line.step)


def record_edited_events(run: Run, events: Sequence[Edited]) -> None:
    """What the trainer did, in the caller's transaction. An edit that nobody asked for here was written into the run folder by hand."""
    for event in events:
        new = {"changes": event.changes, "sent_at": timezone.now()}
        edit, _ = RunEdit.objects.select_for_update(of=("self",)).get_or_create(run=run, key=event.key, defaults=new)
        if event.refused:
            edit.state = EditState.WITHDRAWN if event.refused == WITHDRAWN else EditState.REFUSED
            edit.refusal = "" if event.refused == WITHDRAWN else event.refused
        else:
            edit.changes = {**edit.changes, **event.changes}
            edit.before = {**edit.before, **event.before}
            edit.steps = {**edit.steps, **dict.fromkeys(event.changes, event.step)}
            edit.state = EditState.APPLIED if edit.steps.keys() >= edit.changes.keys() else EditState.PENDING
        edit.save()


def close_run_edits(run: Run) -> None:
    """When the run has finished: what waits never holds."""
    RunEdit.objects.filter(run=run, state=EditState.PENDING).update(state=EditState.MISSED)
