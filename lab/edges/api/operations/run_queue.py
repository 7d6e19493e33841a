"""The queue of runs: what trains, what waits and until when, its order, and workers that are drained."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.runs import find_team_run
from lab.edges.api.problems import ApiProblem, make_invalid_problem
from lab.training.runs.models import Priority
from lab.training.runs.queue_moves import Move, change_priority, move_run, move_to_queue
from lab.training.workers.draining import drain_worker, explain_drain_refusal
from lab.watching.queue.rows import Moment, QueueRow, TrainingRow, build_queue_overview

router = make_router("Run queue")
PriorityName = Literal["high", "normal", "low"]


class TrainingRunOut(Schema):
    run: UUID
    number: int
    name: str
    queue: str
    status: str
    expected_end: datetime | None = Field(description="null while it is not known.")
    expected_end_seconds: float | None = Field(description="Seconds from now.")


class WaitingRunOut(Schema):
    run: UUID
    number: int
    name: str
    queue: str
    priority: PriorityName
    position: int | None = Field(description="Among the runs of all teams that can be taken now; null for a run that cannot.", examples=[1])
    waits: str = Field(description="Why it has not started.", examples=["queue position 1", "after #12"])
    chain: int = Field(description="Number of the first run of its chain, which moves in one piece; its own number if it is in none.")
    created_by: Person | None = Field(description="null when a service token launched it.")
    expected_start: datetime | None = Field(description="null while it is not known; then `unknown` says why.")
    expected_start_seconds: float | None = Field(description="Seconds from now.")
    expected_end: datetime | None
    expected_end_seconds: float | None = Field(description="Seconds from now.")
    unknown: str = Field(description="Why a time is not known.", examples=["unknown: no finished run like it"])


class RunQueueOut(Schema):
    training: list[TrainingRunOut]
    waiting: list[WaitingRunOut] = Field(description="By queue, then in the order in which the team's runs are taken.")


class QueueMove(RequestBody):
    to: Move = Field(examples=["top"])
    before: UUID | None = Field(None, description="For `before`: the run to go before.")


class QueueMoved(Schema):
    changed: bool = Field(description="false if it was so already.")
    words: str = Field(examples=["Moved #17 to the top, before #12 in the queue gpu."])


class QueueChangeIn(RequestBody):
    """Omitted fields stay unchanged."""

    priority: PriorityName | None = Field(None, examples=["high"])
    queue: str | None = Field(None, max_length=50, examples=["gpu"])


class WorkerChange(RequestBody):
    takes_runs: bool = Field(description="false drains it: it finishes its run and takes no more.", examples=[False])


class WorkerChanged(Schema):
    name: str
    takes_runs: bool
    changed: bool = Field(description="false if it was so already.")


@router.get("/queue", auth=require_permission("runs.read"), response=RunQueueOut, summary="The queue of runs")
def list_queued_runs(request: HttpRequest) -> object:
    """Expected times come from the pace of finished runs like each, and from what the workers train now."""
    overview = build_queue_overview(caller_of(request).team)
    waiting = [serialize_waiting_run(row) for section in overview.sections for row in section.rows]
    return {"training": [serialize_training_run(row) for row in overview.training], "waiting": waiting}


def serialize_training_run(row: TrainingRow) -> dict[str, Any]:
    run = row.run
    return {"run": run.pk, "number": run.number, "name": run.name, "queue": run.queue, "status": run.status, **serialize_moment("end", row.end)}


def serialize_waiting_run(row: QueueRow) -> dict[str, Any]:
    run = row.run
    return {
        **{"run": run.pk, "number": run.number, "name": run.name, "queue": run.queue, "priority": row.priority.name.lower()},
        **{"position": row.reason.position, "waits": row.reason.why, "chain": row.head, "unknown": row.forecast.unknown},
        "created_by": serialize_person(run.created_by) if run.created_by else None,
        **serialize_moment("start", row.start),
        **serialize_moment("end", row.end),
    }


def serialize_moment(name: str, moment: Moment | None) -> dict[str, Any]:
    return {f"expected_{name}": moment.at if moment else None, f"expected_{name}_seconds": moment.seconds if moment else None}


@router.post("/queue/{uuid:run_id}/move", auth=require_permission("runs.launch"), response=QueueMoved, summary="Move a waiting run")
def move_queued_run(request: HttpRequest, run_id: UUID, given: QueueMove) -> dict[str, Any]:
    """A chain moves in one piece. Next to runs of another priority it gets theirs. A run that a worker has taken meanwhile is a conflict."""
    if (given.to == Move.BEFORE) != (given.before is not None):
        raise make_invalid_problem("before", "goes with `to: before`, and only with that", "name the run to go before, or leave it out")
    run = find_team_run(request, run_id)
    before = find_team_run(request, given.before).number if given.before else None
    change = move_run(run.team, run.number, given.to, before)
    return {"changed": change.changed, "words": change.words}


@router.patch("/queue/{uuid:run_id}", auth=require_permission("runs.launch"), response=QueueMoved, summary="Change priority or queue")
def change_queued_run(request: HttpRequest, run_id: UUID, given: QueueChangeIn) -> dict[str, Any]:
    """Of its whole chain."""
    run = find_team_run(request, run_id)
    changes = []
    with transaction.atomic():
        if given.queue is not None:
            changes.append(move_to_queue(run.team, run.number, given.queue))
        if given.priority is not None:
            changes.append(change_priority(run.team, run.number, Priority[given.priority.upper()]))
    if not changes:
        raise make_invalid_problem("priority", "is missing, and so is queue", "give at least one of them")
    return {"changed": any(change.changed for change in changes), "words": " ".join(change.words for change in changes)}


@router.patch("/workers/{name}", auth=require_permission("workers.drain"), response=WorkerChanged, summary="Drain a worker")
def change_worker_drain(request: HttpRequest, name: str, given: WorkerChange) -> dict[str, Any]:
    """It finishes the run it trains and takes no more, until it takes runs again or is started anew. Workers train for every team of the lab: where
    there are several, only operators may do this.
    """
    caller = caller_of(request)
    if refusal := explain_drain_refusal(caller.user, caller.team):
        raise ApiProblem("permission", refusal)
    return {"name": name, "takes_runs": given.takes_runs, "changed": drain_worker(name, given.takes_runs, caller.team)}
