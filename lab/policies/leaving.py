"""Who leaves a team leaves no push behind that has not ended."""

from __future__ import annotations

from django.utils import timezone

from lab.accounts.models import Team, User
from lab.people.leaving import Held, register
from lab.policies.models import UNDER_WAY, Push, PushState


def let_go(team: Team, user: User) -> None:
    mine = Push.objects.filter(team=team, by=user)
    mine.filter(state=PushState.QUEUED).update(
        state=PushState.CANCELLED, cancel=True, ended_at=timezone.now(), problem="Who asked for it left the team."
    )
    mine.filter(state=PushState.RUNNING).update(cancel=True)


def holds(team: Team, user: User) -> list[Held]:
    count = Push.objects.filter(team=team, by=user, state__in=UNDER_WAY).count()
    return [Held(f"{count} push{'es' if count > 1 else ''} to a hub {'are' if count > 1 else 'is'} cancelled.")] if count else []


def begin() -> None:
    register(let_go, holds)
