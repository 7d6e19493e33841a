"""Queues that an invitation names: open ones to choose from, and their newcomer assigned on joining."""

from __future__ import annotations

from collections.abc import Collection

from lab.accounts.models import Team, User
from lab.labels.models import Queue, QueueStatus
from lab.labels.people import add
from lab.people import assigning
from lab.people.assigning import Assigned

DELETED = "a queue that is deleted"


def register() -> None:
    assigning.register(choices, assign)


def choices(team: Team) -> list[tuple[int, str]]:
    return list(Queue.objects.of(team).filter(status=QueueStatus.OPEN).order_by("-pk").values_list("pk", "name"))


def assign(team: Team, user: User, queues: Collection[int]) -> Assigned:
    """A paused queue takes somebody: it goes on later."""
    found = list(Queue.objects.of(team).filter(pk__in=queues).order_by("pk"))
    taking = [queue for queue in found if queue.status != QueueStatus.CLOSED]
    for queue in taking:
        add(queue, user)
    closed = [queue.name for queue in found if queue.status == QueueStatus.CLOSED]
    return Assigned(tuple(queue.name for queue in taking), (*closed, *([DELETED] if len(found) < len(set(queues)) else [])))
