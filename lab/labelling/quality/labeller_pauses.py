"""Pausing a labeller in a queue, and letting them go on. Their labels stay as they are."""

from __future__ import annotations

from lab.labelling.labels import people
from lab.labelling.labels.models import Queue
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry

REASON = 300  # characters
USUAL = "The manager of this queue has paused you."


def pause_queue_labeller(queue: Queue, user: User, reason: str) -> None:
    """What they hold is free again at once; they read the reason when they come back."""
    reason = reason.strip()[:REASON] or USUAL
    people.pause_labeller(queue, user, reason)
    record_audit_entry("queue.people", queue, person=user.email, did="pause", reason=reason)


def resume_queue_labeller(queue: Queue, user: User) -> None:
    people.resume_labeller(queue, user)
    record_audit_entry("queue.people", queue, person=user.email, did="resume")
