"""Edits of a running run: what can be changed now, the edits there are, asking for one, taking it back, and the run without one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.runs import Launched, answer_launch, find_team_run
from lab.training.edits.editable import build_edit_sheet
from lab.training.edits.forking import fork_without_edit
from lab.training.edits.models import RunEdit
from lab.training.edits.verbs import REASON_LENGTH, request_run_edit, withdraw_run_edit
from lab.training.edits.wording import list_edited_settings
from lab.training.runs.models import Run
from trainers.contract.edits import MOST_CHANGES

router = make_router("Run edits")


class EditedSettingOut(Schema):
    name: str = Field(examples=["training.learning_rate"])
    before: float | None = Field(description="null if it is not known.", examples=[0.0003])
    after: float = Field(examples=[0.0001])
    step: int | None = Field(description="The first step that trained with it; null while it does not hold.", examples=[120])


class EditOut(Schema):
    id: int
    state: str = Field(description="pending, applied, refused (by the trainer), withdrawn or missed (the run finished first).", examples=["applied"])
    reason: str
    settings: list[EditedSettingOut]
    refusal: str = Field(description="Why the trainer refused it; empty otherwise.")
    created_by: Person | None = Field(description="null for a service token, and for an edit written into the run folder.")
    created_at: datetime
    withdrawn_at: datetime | None = Field(description="When somebody asked to take it back.")


class EditsOut(Schema):
    editable: bool = Field(description="Whether the run can be edited now.")
    objection: str = Field(description="Why not; empty if it can.")
    settings: dict[str, float] = Field(description="What can be changed, with the values the run trains with.")
    refused: dict[str, str] = Field(description="What cannot be changed for this run, and why.")
    edits: list[EditOut] = Field(description="Oldest first.")


class EditIn(RequestBody):
    changes: dict[str, float] = Field(
        description="Setting → new value; settings left out keep theirs.", max_length=MOST_CHANGES, examples=[{"training.learning_rate": 0.0001}]
    )
    reason: str = Field(description="Stored with the edit and shown at its mark.", max_length=REASON_LENGTH, examples=["loss spikes"])


def serialize_edit(edit: RunEdit) -> dict[str, Any]:
    settings = [{"name": one.name, "before": one.before, "after": one.after, "step": one.step} for one in list_edited_settings(edit)]
    plain = {name: getattr(edit, name) for name in ("state", "reason", "refusal", "created_at", "withdrawn_at")}
    return {**plain, "id": edit.pk, "settings": settings, "created_by": serialize_person(edit.author) if edit.author else None}


def find_run_edit(request: HttpRequest, run: Run, edit_id: int) -> RunEdit:
    """Raises Http404."""
    edit: RunEdit = one_of(RunEdit.objects.filter(run=run).select_related("run__team", "run__parent", "author"), edit_id)
    return edit


@router.get("/runs/{uuid:run_id}/edits", auth=require_permission("runs.read"), response=EditsOut, summary="Edits of a run")
def list_run_edits(request: HttpRequest, run_id: UUID) -> object:
    """Also which settings can be changed now, and their values."""
    run = find_team_run(request, run_id)
    sheet = build_edit_sheet(run)
    return {
        "editable": not sheet.objection,
        "objection": sheet.objection,
        "settings": sheet.current,
        "refused": sheet.settings.refused,
        "edits": [serialize_edit(edit) for edit in run.edits.select_related("author")],
    }


@router.post("/runs/{uuid:run_id}/edits", auth=require_permission("runs.edit"), response={201: EditOut, 200: EditOut}, summary="Edit a running run")
def edit_run(request: HttpRequest, run_id: UUID, given: EditIn, key: Key) -> object:
    """The trainer applies it at its next boundary: learning rate and beta from the next optimizer step, everything else from the next generation
    batch. The spec stays as launched. Bounds are those of a launch.
    """
    caller, run = caller_of(request), find_team_run(request, run_id)

    def act() -> list[Any]:
        return [request_run_edit(run, caller.user, given.changes, given.reason).pk]

    [made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_edit(find_run_edit(request, run, int(made))))


@router.delete("/runs/{uuid:run_id}/edits/{int:edit_id}", auth=require_permission("runs.edit"), response=EditOut, summary="Withdraw an edit")
def withdraw_edit(request: HttpRequest, run_id: UUID, edit_id: int) -> object:
    """Only while it does not hold. If the trainer may have read it already, the edit stays pending until the trainer answers."""
    edit = find_run_edit(request, find_team_run(request, run_id), edit_id)
    return serialize_edit(withdraw_run_edit(edit))


@router.post(
    "/runs/{uuid:run_id}/edits/{int:edit_id}/fork",
    auth=require_permission("runs.launch"),
    response={201: Launched, 200: Launched},
    summary="Fork without an edit",
)
def fork_run_without_edit(request: HttpRequest, run_id: UUID, edit_id: int, key: Key) -> object:
    """Queues a run that repeats this one without the edit, from the newest checkpoint before it, with optimizer state and earlier edits."""
    caller = caller_of(request)
    edit = find_run_edit(request, find_team_run(request, run_id), edit_id)

    def act() -> list[Any]:
        return [fork_without_edit(edit, caller.user).pk]

    return answer_launch(request, *run_idempotent_action(request, caller, key, act), [])
