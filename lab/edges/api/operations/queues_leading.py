"""Leading a queue: opening, pausing and closing it, and who works in it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import Http404, HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.queues import QueueOut, serialize_queue
from lab.edges.api.problems import make_invalid_problem
from lab.labelling.labels import queue_acts
from lab.labelling.labels.models import Queue, QueueStatus
from lab.labelling.labels.people import QueuePerson as Worker
from lab.labelling.labels.people import people_of
from lab.teams.accounts.models import User

router = make_router("Labelling")


class StatusIn(RequestBody):
    status: Literal["open", "paused", "closed"]


class WorkerIn(RequestBody):
    labels: bool | None = Field(None, description="Whether the person may label in this queue.")
    reviews: bool | None = Field(None, description="Whether the person reviews in this queue; people who lead queues always can.")


class LabelWorker(Schema):
    user: Person
    role: str = Field(description="Empty for people who left the team or may not label.")
    labels: bool = Field(description="May currently label in this queue.")
    chosen: bool = Field(description="Assigned to this queue.")
    reviews: bool
    paused_at: datetime | None
    labelled: int
    skipped: int
    holding: int = Field(description="Items they currently hold.")
    last: datetime | None = Field(description="Time of their last answer.")


def find_team_queue(request: HttpRequest, queue_id: int) -> Queue:
    queue: Queue = one_of(Queue.objects.of(caller_of(request).team).select_related("team"), queue_id)
    return queue


def serialize_queue_worker(worker: Worker) -> dict[str, Any]:
    names = ("role", "labels", "chosen", "reviews", "labelled", "skipped", "holding", "last")
    paused = worker.member.paused_at if worker.member else None
    return {**{name: getattr(worker, name) for name in names}, "user": serialize_person(worker.user), "paused_at": paused}


@router.put("/queues/{int:queue_id}/status", auth=require_permission("label.lead"), response=QueueOut, summary="Open, pause or close a queue")
def set_queue_status(request: HttpRequest, queue_id: int, given: StatusIn) -> object:
    """In a paused queue drafts are kept and nobody gets new items; in a closed queue nobody is asked any more. Labels are kept."""
    queue_acts.set_status(find_team_queue(request, queue_id), QueueStatus(given.status))
    return serialize_queue(find_team_queue(request, queue_id))


@router.get("/queues/{int:queue_id}/people", auth=require_permission("label.lead"), response=list[LabelWorker], summary="People of a queue")
def list_queue_people(request: HttpRequest, queue_id: int) -> object:
    """Everyone who may label, and everyone who has."""
    return [serialize_queue_worker(worker) for worker in people_of(find_team_queue(request, queue_id))]


@router.put(
    "/queues/{int:queue_id}/people/{int:user_id}",
    auth=require_permission("label.lead"),
    response=LabelWorker,
    summary="Allow a person to label or review",
)
def change_worker(request: HttpRequest, queue_id: int, user_id: int, given: WorkerIn) -> object:
    """Omitted fields stay unchanged. A person who may no longer label here loses the items they hold; their labels are kept."""
    queue = find_team_queue(request, queue_id)
    user: User = one_of(User.objects.filter(memberships__team=queue.team), user_id)
    acts = {"labels": {True: "add", False: "remove"}, "reviews": {True: "reviewer", False: "no-reviewer"}}
    changes = {name: value for name, value in given.dict().items() if value is not None}
    if not changes:
        raise make_invalid_problem("the body", "contains no changes", "give labels or reviews")
    for name, value in changes.items():
        queue_acts.change_person(queue, user, acts[name][value])
    worker = next((candidate for candidate in people_of(queue) if candidate.user.pk == user.pk), None)
    if worker is None:
        raise Http404
    return serialize_queue_worker(worker)
