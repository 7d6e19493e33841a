"""Who works in a queue: everybody of the team who may label, or those who were chosen; who reviews; who is paused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from lab.labelling.labels.item_claims import free_claims
from lab.labelling.labels.models import JudgementState, Queue, QueueMember, QueueStatus, Verdict
from lab.teams.accounts.models import Membership, Team, User
from lab.teams.accounts.permissions import LABELLERS, LEADS


@dataclass(frozen=True)
class QueuePerson:
    """``labels``: whether they may label here now; ``chosen``: by name. ``gone``: no longer in the team, or deactivated."""

    user: User
    role: str
    member: QueueMember | None
    chosen: bool
    labels: bool
    labelled: int
    skipped: int
    holding: int
    last: datetime | None
    gone: bool

    @property
    def reviews(self) -> bool:
        return self.role in LEADS or bool(self.member and self.member.reviews)

    @property
    def always_reviews(self) -> bool:
        return self.role in LEADS


def list_labelling_members(team: Team) -> QuerySet[Membership]:
    """Those of the team who may label."""
    return team.memberships.filter(role__in=LABELLERS, active=True, user__is_active=True).select_related("user").order_by("user__email")


def list_labeller_choices(team: Team) -> list[tuple[int, str]]:
    return [
        (
            member.user_id,
            f"{member.user} ({member.role})" if str(member.user) == member.user.email else f"{member.user}, {member.user.email} ({member.role})",
        )
        for member in list_labelling_members(team)
    ]


def open_to(team: Team, user: User, leads: bool) -> QuerySet[Queue]:
    """Queues of the team the person may see: all of them for leads, else those they may label or review in."""
    queues = Queue.objects.of(team)
    if leads:
        return queues
    mine = QueueMember.objects.of(team).filter(user=user)
    shut = mine.filter(labels=False, reviews=False)
    allowed = mine.filter(Q(labels=True) | Q(reviews=True))
    return queues.filter(Q(assigned_only=False) & ~Q(pk__in=shut.values("queue")) | Q(pk__in=allowed.values("queue")))


def people_of(queue: Queue) -> list[QueuePerson]:
    """Everybody who may work in the queue, and everybody who has."""
    members = {member.user_id: member for member in queue.members.select_related("user")}
    done: dict[int, Any] = {
        row["user"]: row
        for row in queue.judgements.exclude(state=JudgementState.WITHDRAWN)
        .order_by()
        .values("user")
        .annotate(labelled=Count("pk", filter=~Q(verdict=Verdict.SKIP)), skipped=Count("pk", filter=Q(verdict=Verdict.SKIP)), last=Max("created_at"))
    }
    holding = dict(queue.claims.filter(seated=True, expires_at__gt=Now()).order_by().values_list("user").annotate(Count("pk")))
    roles = {member.user_id: member for member in list_labelling_members(queue.team)}
    user_ids = {*members, *done, *(() if queue.assigned_only else roles)}
    users = User.objects.in_bulk(user_ids)
    people = []
    for pk in user_ids:
        member, row, role = members.get(pk), done.get(pk, {}), roles.get(pk)
        chosen = bool(member and member.labels)
        labels = role is not None and (chosen if queue.assigned_only or member else True)
        counts = (row.get("labelled", 0), row.get("skipped", 0), holding.get(pk, 0), row.get("last"))
        people.append(QueuePerson(users[pk], role.role if role else "", member, chosen, labels, *counts, gone=role is None))
    return sorted(people, key=lambda person: (person.gone, -person.labelled, person.user.email))


def assign_labellers(queue: Queue, user_ids: Collection[int]) -> None:
    """Exactly these people label from now on; who is no longer among them loses what they hold, and keeps what they said."""
    allowed = {member.user_id for member in list_labelling_members(queue.team)} & set(user_ids)
    with transaction.atomic():
        for member in queue.members.filter(labels=True).exclude(user__in=allowed).select_related("user"):
            remove_labeller(queue, member.user)
        for user in User.objects.filter(pk__in=allowed):
            add_labeller(queue, user)


def add_labeller(queue: Queue, user: User) -> None:
    QueueMember.objects.update_or_create(queue=queue, user=user, defaults={"labels": True})


def remove_labeller(queue: Queue, user: User) -> None:
    """They label here no more, and the items they hold are free again. Their labels stay."""
    with transaction.atomic():
        QueueMember.objects.update_or_create(queue=queue, user=user, defaults={"labels": False})
        free_claims(queue, user)


def pause_labeller(queue: Queue, user: User, reason: str) -> None:
    with transaction.atomic():
        QueueMember.objects.update_or_create(queue=queue, user=user, defaults={"paused_at": timezone.now(), "paused_reason": reason[:300]})
        free_claims(queue, user)


def resume_labeller(queue: Queue, user: User) -> None:
    queue.members.filter(user=user).update(paused_at=None, paused_reason="")


def set_reviewer(queue: Queue, user: User, reviews: bool) -> None:
    """A row that is made for this alone leaves the person's labelling as it was."""
    fresh = {"labels": not queue.assigned_only, "reviews": reviews}
    QueueMember.objects.update_or_create(queue=queue, user=user, defaults={"reviews": reviews}, create_defaults=fresh)


def can_pause_labellers(queue: Queue) -> bool:
    return queue.status != QueueStatus.CLOSED
