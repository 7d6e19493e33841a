"""The bin: runs that wait to be deleted, putting them there, restoring them, and not waiting."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.runs_bulk import BulkActOut, serialize_outcome
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.lib.numbers import MAX_INTEGER
from lab.models.bin.freed import count_freed
from lab.models.bin.hindrances import find_purge_objections
from lab.models.bin.verbs import order_purge, put_runs_in_bin, restore_runs
from lab.training.runs.models import HEAVY, Run
from lab.training.runs.verbs import MOST_AT_ONCE

router = make_router("Runs")


class FreedOut(Schema):
    rollouts: int
    bytes: int = Field(description="Of checkpoints and policies on disk.")
    comments: int
    labels: int


class BinnedRun(Schema):
    id: UUID
    number: int
    name: str
    binned_at: datetime
    binned_by: Person | None = Field(description="null: a service token, or somebody who has no account any more.")
    purge_at: datetime = Field(description="When it is deleted for good.")
    purging: bool = Field(description="Its deletion has begun; it cannot be restored.")
    frees: FreedOut
    objection: str = Field(description="Why it is not deleted although it is due; empty if nothing stands in the way.")


class ChosenRuns(RequestBody):
    runs: list[int] = Field(min_length=1, max_length=MOST_AT_ONCE, description="Numbers of runs.", examples=[[17, 18]])


@router.get("/bin", auth=require_permission("runs.read"), response=Page[BinnedRun], summary="List runs in the bin")
def list_binned_runs(request: HttpRequest, after: After, limit: Limit) -> object:
    """Newest run first."""
    team = caller_of(request).team
    rows = Run.objects.in_bin(team).filter(number__lt=min(parse_after_id(after), MAX_INTEGER)).select_related("binned_by")
    page = paginate_rows(list(rows.defer(*HEAVY).order_by("-number")[: limit + 1]), limit, lambda run: run.number)
    freed, objections = count_freed(team, page["items"]), find_purge_objections(team, page["items"])
    return {**page, "items": [serialize_binned_run(run, freed[run.pk], objections.get(run.pk, "")) for run in page["items"]]}


def serialize_binned_run(run: Run, freed: object, objection: str) -> dict[str, Any]:
    fields = {name: getattr(run, name) for name in ("id", "number", "name", "binned_at", "purge_at", "purging")}
    return {**fields, "binned_by": serialize_person(run.binned_by) if run.binned_by else None, "frees": freed, "objection": objection}


@router.post("/bin", auth=require_permission("runs.launch"), response=BulkActOut, summary="Put runs in the bin")
def put_in_bin(request: HttpRequest, given: ChosenRuns) -> dict[str, Any]:
    """They are in no list until they are restored, and are deleted for good after the lab's number of days. Runs that are open or that other work
    depends on are left alone; the response says why.
    """
    caller = caller_of(request)
    return serialize_outcome(put_runs_in_bin(caller.team, caller.user, given.runs))


@router.post("/bin/restore", auth=require_permission("runs.launch"), response=BulkActOut, summary="Restore runs from the bin")
def restore_from_bin(request: HttpRequest, given: ChosenRuns) -> dict[str, Any]:
    return serialize_outcome(restore_runs(caller_of(request).team, given.runs))


@router.post("/bin/delete", auth=require_permission("runs.delete"), response=BulkActOut, summary="Delete runs in the bin now")
def delete_from_bin(request: HttpRequest, given: ChosenRuns) -> dict[str, Any]:
    """A worker deletes them for good within seconds. This cannot be undone."""
    return serialize_outcome(order_purge(caller_of(request).team, given.runs))
