"""Whether a person may label in a queue, or review there, at this moment. Asked of the database: what a page or a session knows may be old."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db import connection

from lab.labelling.labels.models import Queue, QueueStatus
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import User
from lab.teams.accounts.permissions import LABELLERS, LEADS


class QueuePaused(Refusal):
    """What people hold stays theirs meanwhile."""


# Written out: it runs in every request of a labelling page, and the ORM takes longer to write it than PostgreSQL to answer.
FACTS = """
SELECT queue.status, queue.assigned_only, membership.role, member.labels, member.reviews, member.paused_at, member.paused_reason
FROM labels_queue queue
LEFT JOIN accounts_user person ON person.id = %(user)s AND person.is_active
LEFT JOIN accounts_membership membership ON membership.team_id = queue.team_id AND membership.user_id = person.id AND membership.active
LEFT JOIN labels_queuemember member ON member.queue_id = queue.id AND member.user_id = %(user)s
WHERE queue.id = %(queue)s
"""


class StandingFacts(NamedTuple):
    """What decides, as it is now. ``role`` is None for who is not in the team; the last four for who has no row of their own in the queue."""

    status: str
    assigned_only: bool
    role: str | None
    labels: bool | None
    reviews: bool | None
    paused_at: datetime | None
    paused_reason: str | None


def fetch_standing_facts(queue: Queue, user: User) -> StandingFacts:
    with connection.cursor() as cursor:
        cursor.execute(FACTS, {"queue": queue.pk, "user": user.pk})
        return StandingFacts(*cursor.fetchone())


def may_label(queue: Queue, user: User) -> None:
    """Raises Refusal for a queue that is not open, and for who has left, may only read, is not assigned or is paused."""
    standing = fetch_standing_facts(queue, user)
    if standing.role is None:
        raise Refusal("Your account was deactivated, or you are no longer in this team.", "Ask an owner or admin of the team.", status=403)
    if standing.role not in LABELLERS:
        raise Refusal("Your role is viewer: you can view but not label.", "An owner or admin can change your role.", status=403)
    if standing.status == QueueStatus.PAUSED:
        raise QueuePaused("This queue is paused.", "Your drafts are kept. Ask the manager of the queue when it resumes.", status=403)
    if standing.status == QueueStatus.CLOSED:
        raise Refusal("This queue is closed.", "Choose another queue.", status=403)
    if standing.paused_at is not None:
        reason = standing.paused_reason or "You are paused in this queue."
        raise Refusal(reason, "Ask the manager of the queue to resume you.", status=403)
    if standing.labels is False or (standing.assigned_only and not standing.labels):
        raise Refusal("You are not assigned to label in this queue.", "Ask the manager of the queue to assign you.", status=403)


def may_review(queue: Queue, user: User) -> None:
    """Raises Refusal unless the person leads in the team or reviews in this queue."""
    standing = fetch_standing_facts(queue, user)
    if standing.role not in LEADS and not (standing.role in LABELLERS and standing.reviews):
        raise Refusal("You are not a reviewer of this queue.", "An owner, admin or researcher can make you one.", status=403)
