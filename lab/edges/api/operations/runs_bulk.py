"""One act on several runs; what was not changed, and why."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.problems import make_invalid_problem
from lab.training.runs import verbs
from lab.training.runs.models import TAG_LENGTH

router = make_router("Runs")


class BulkAct(StrEnum):
    STOP = "stop"
    RESUME = "resume"
    ARCHIVE = "archive"
    UNARCHIVE = "unarchive"
    TAG = "tag"
    UNTAG = "untag"


class BulkActIn(RequestBody):
    act: BulkAct = Field(examples=["archive"])
    runs: list[int] = Field(min_length=1, max_length=verbs.MOST_AT_ONCE, description="Numbers of runs.", examples=[[17, 18]])
    tag: str = Field("", max_length=TAG_LENGTH, description="For `tag` and `untag`.")


class Unchanged(Schema):
    run: int = Field(description="Number of the run.", examples=[18])
    reason: str = Field(examples=["running, stop it first"])


class BulkActOut(Schema):
    changed: list[int] = Field(description="Numbers of the runs that were changed.")
    unchanged: list[Unchanged]


@router.post("/runs/act", auth=require_permission("runs.launch"), response=BulkActOut, summary="Stop, resume, archive or tag several runs")
def act_on_runs(request: HttpRequest, given: BulkActIn) -> dict[str, Any]:
    """Runs that cannot be changed are left alone; the response says why. If the team has none of the runs, it is 404."""
    if given.tag and given.act not in verbs.TAG_ACTS:
        raise make_invalid_problem("tag", f"is not used by the act {given.act.value}", "leave it out")
    return serialize_outcome(verbs.act_on_runs(caller_of(request).team, given.act, given.runs, given.tag))


def serialize_outcome(outcome: verbs.BulkOutcome) -> dict[str, Any]:
    unchanged = [{"run": number, "reason": why} for number, why in outcome.left.items()]
    return {"changed": [run.number for run in outcome.changed], "unchanged": unchanged}
