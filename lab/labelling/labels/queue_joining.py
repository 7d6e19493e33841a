"""Queues that an invitation names: open ones to choose from, and their newcomer assigned on joining."""

from __future__ import annotations

from collections.abc import Collection

from lab.labelling.labels.models import Queue, QueueStatus
from lab.labelling.labels.people import add_labeller
from lab.teams.accounts.models import Team, User
from lab.teams.people import queue_assignment
from lab.teams.people.queue_assignment import QueueAssignment

DELETED = "a queue that is deleted"


def register_queue_assigning() -> None:
    queue_assignment.ASSIGNERS.register("labels", queue_assignment.QueueAssigner(list_open_queue_choices, assign_to_queues))


def list_open_queue_choices(team: Team) -> list[tuple[int, str]]:
    return list(Queue.objects.of(team).filter(status=QueueStatus.OPEN).order_by("-pk").values_list("pk", "name"))


def assign_to_queues(team: Team, user: User, queues: Collection[int]) -> QueueAssignment:
    """A paused queue takes somebody: it goes on later."""
    chosen = list(Queue.objects.of(team).filter(pk__in=queues).order_by("pk"))
    taking = [queue for queue in chosen if queue.status != QueueStatus.CLOSED]
    for queue in taking:
        add_labeller(queue, user)
    closed = [queue.name for queue in chosen if queue.status == QueueStatus.CLOSED]
    return QueueAssignment(tuple(queue.name for queue in taking), (*closed, *([DELETED] if len(chosen) < len(set(queues)) else [])))
