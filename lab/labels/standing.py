"""Whether a person may label in a queue, or review there, at this moment. Asked of the database: what a page or a session knows may be old."""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, Subquery

from lab.accounts.models import Membership, User
from lab.accounts.roles import ANNOTATORS, LEADS
from lab.labels.models import Queue, QueueMember, QueueStatus


class Refused(Exception):
    """The person may not do this here and now; ``message`` says why, ``fix`` what to do."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


def facts(queue: Queue, user: User) -> dict[str, Any]:
    """What decides, as it is now, in one query."""
    role = Membership.objects.filter(team=OuterRef("team"), user=user.pk, user__is_active=True).values("role")
    member = QueueMember.objects.filter(queue=OuterRef("pk"), user=user.pk)
    names = ("labels", "reviews", "paused_at", "paused_reason")
    asked = {"role": Subquery(role), **{f"member_{name}": Subquery(member.values(name)) for name in names}}
    return Queue.objects.filter(pk=queue.pk).annotate(**asked).values("status", "assigned_only", "overlap", *asked).get()


def may_label(queue: Queue, user: User) -> None:
    """Raises Refused for a queue that is not open, and for who has left, may only read, is not assigned or is paused."""
    found = facts(queue, user)
    if found["role"] is None:
        raise Refused("Your account was deactivated, or you are no longer in this team.", "Ask an owner or admin of the team.")
    if found["role"] not in ANNOTATORS:
        raise Refused("Your role is viewer: you may read here but not label.", "An owner or admin can change your role.")
    if found["status"] == QueueStatus.PAUSED:
        raise Refused("This queue is paused.", "Your drafts are kept. Ask the person who runs the queue when it goes on.")
    if found["status"] == QueueStatus.CLOSED:
        raise Refused("This queue is closed.", "Choose another queue.")
    if found["member_paused_at"] is not None:
        reason = found["member_paused_reason"] or "You are paused in this queue."
        raise Refused(reason, "Ask the person who runs the queue to let you go on.")
    if found["member_labels"] is False or (found["assigned_only"] and not found["member_labels"]):
        raise Refused("You are not assigned to label in this queue.", "Ask the person who runs the queue to assign you.")


def may_review(queue: Queue, user: User) -> None:
    """Raises Refused unless the person leads in the team or reviews in this queue."""
    found = facts(queue, user)
    if found["role"] not in LEADS and not (found["role"] in ANNOTATORS and found["member_reviews"]):
        raise Refused("You do not review in this queue.", "An owner, admin or researcher can make you a reviewer of it.")
