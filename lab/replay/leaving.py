"""What-if questions of somebody who leaves the team and that no worker has begun: they are not worked out."""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils import timezone

from lab.accounts.models import Team, User
from lab.people import leaving
from lab.people.leaving import Held
from lab.replay.models import Replay, ReplayStatus


def register() -> None:
    leaving.register(drop, holds)


def waiting(team: Team, user: User) -> QuerySet[Replay]:
    return Replay.objects.of(team).filter(user=user, status=ReplayStatus.QUEUED)


def drop(team: Team, user: User) -> None:
    waiting(team, user).update(status=ReplayStatus.FAILED, error="Who asked has left the team. Ask again.", finished_at=timezone.now())


def holds(team: Team, user: User) -> list[Held]:
    found = waiting(team, user).count()
    return [Held(f"{found} waiting what-if question{'s are' if found > 1 else ' is'} dropped.")] if found else []
