"""What a lead does with a queue and its people, by whomever it is asked for."""

from __future__ import annotations

from django.db import transaction

from lab.labelling.labels import people
from lab.labelling.labels.models import Queue, QueueStatus
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry

NOTHING = "Nothing was changed."


def set_status(queue: Queue, status: QueueStatus) -> None:
    """Open, paused (drafts are kept, nobody gets new items) or closed."""
    with transaction.atomic():
        if Queue.objects.same_row(queue).exclude(status=status).update(status=status):
            record_audit_entry("queue.change", queue, status=[str(queue.status), str(status)])


def change_person(queue: Queue, user: User, act: str) -> str:
    """Does it, and says what was done."""
    with transaction.atomic():
        message = apply_person_change(queue, user, act)
        if message != NOTHING:
            record_audit_entry("queue.people", queue, person=user.email, did=act)
    return message


def apply_person_change(queue: Queue, user: User, act: str) -> str:
    if act == "add":
        people.add_labeller(queue, user)
        return f"{user} can label here."
    if act == "remove":
        people.remove_labeller(queue, user)
        return f"{user} can no longer label here; their items are released and their labels are kept."
    if act == "pause":
        people.pause_labeller(queue, user, "You were paused in this queue by a manager.")
        return f"{user} is paused; their items are released."
    if act == "resume":
        people.resume_labeller(queue, user)
        return f"{user} was resumed."
    if act in ("reviewer", "no-reviewer"):
        people.set_reviewer(queue, user, act == "reviewer")
        return f"{user} {'reviews' if act == 'reviewer' else 'does not review'} here."
    return NOTHING
