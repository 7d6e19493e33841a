"""Runs that scripts elsewhere train and send (``trainers.outside`` speaks this)."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import Http404, HttpRequest
from ninja import Field, Schema

from lab.edges.api import problems
from lab.edges.api.base import Query, RequestBody, caller_of, make_router, require_permission
from lab.supervision.outside import received_spools
from lab.teams.accounts.addresses import team_path
from lab.training.runs.models import Run

router = make_router("Runs from outside")


class OpeningIn(RequestBody):
    key: uuid.UUID = Field(description="Created by the script and stored next to its spool; the same key opens the same run again.")
    name: str = Field(examples=["my first GRPO"])
    trainer: str = Field("other", examples=["grpo"], description=f"One of {', '.join(received_spools.TRAINERS)}.")
    policy: str = Field("", examples=["Qwen/Qwen3-0.6B"])
    task: str = ""
    total_steps: int = Field(0, description="0 if unknown.")
    config: dict[str, Any] = Field(default_factory=dict, description="Settings worth showing, up to 64 KiB; no secrets.")


class Opened(Schema):
    run: uuid.UUID
    url: str = Field(description="Path of the run's page.")
    offset: int = Field(description="Bytes of its spool that the lab has received.")


class Heard(Schema):
    offset: int = Field(description="Bytes of the spool that the lab has received; continue from there.")
    stop: bool = Field(description="A stop of the run was requested.")


@router.post("/outside/runs", auth=require_permission("runs.send"), response=Opened, summary="Start or resume an external run")
def open_outside_run(request: HttpRequest, given: OpeningIn) -> object:
    """The run appears in the lab immediately; send its events with the next operation."""
    caller = caller_of(request)
    run, offset = received_spools.open_run(caller.team, caller.user, received_spools.RunOpening(**given.model_dump()))
    return {"run": run.pk, "url": team_path(run.team, "run", run.pk), "offset": offset}


@router.post(
    "/outside/runs/{key}/events",
    auth=require_permission("runs.send"),
    response=Heard,
    summary="Send events of an external run",
    openapi_extra={"requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string", "format": "binary"}}}}},
)
def send_events(request: HttpRequest, key: uuid.UUID, offset: int = Query(ge=0, description="Position of the first byte in the spool.")) -> object:
    """Whole lines of the spool; docs/run-files.md describes the events. Data that does not begin where the lab's copy ends is not stored."""
    run = Run.objects.of(caller_of(request).team).filter(pk=received_spools.pk_of(caller_of(request).team, key), outside=True).first()
    if run is None:
        raise Http404("No run was started with this key.")
    try:
        heard = received_spools.receive_spool_piece(run, offset, request.read(received_spools.PIECE_BYTES + 1))
    except received_spools.LabBusy as error:
        raise problems.ApiProblem("away", str(error), headers={"Retry-After": "30"}) from None
    return {"offset": heard.offset, "stop": heard.stop}
