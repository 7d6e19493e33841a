"""Pausing a labeller in a queue, and letting them go on. Their labels stay as they are."""

from __future__ import annotations

from lab.accounts.models import User
from lab.audit.recording import record
from lab.labels import people
from lab.labels.models import Queue

REASON = 300  # characters
USUAL = "The person who runs this queue has paused you."


def pause(queue: Queue, user: User, reason: str) -> None:
    """What they hold is free again at once; they read the reason when they come back."""
    reason = reason.strip()[:REASON] or USUAL
    people.pause(queue, user, reason)
    record("queue.people", queue, person=user.email, did="pause", reason=reason)


def resume(queue: Queue, user: User) -> None:
    people.resume(queue, user)
    record("queue.people", queue, person=user.email, did="resume")
