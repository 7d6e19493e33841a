"""Who leaves a team leaves no push behind that has not ended."""

from __future__ import annotations

from django.db.models.functions import Now

from lab.models.policies.models import UNDER_WAY, Push, PushState
from lab.teams.accounts.models import Team, User
from lab.teams.people.departures import MemberHolding, register_leaving_hook


def let_go(team: Team, user: User) -> None:
    mine = Push.objects.filter(team=team, by=user)
    mine.filter(state=PushState.QUEUED).update(
        state=PushState.CANCELLED, cancel=True, ended_at=Now(), problem="The person who requested it left the team."
    )
    mine.filter(state=PushState.RUNNING).update(cancel=True)


def list_held_pushes(team: Team, user: User) -> list[MemberHolding]:
    count = Push.objects.filter(team=team, by=user, state__in=UNDER_WAY).count()
    return [MemberHolding(f"{count} push{'es' if count > 1 else ''} to a hub {'are' if count > 1 else 'is'} cancelled.")] if count else []


def register_push_leaving() -> None:
    register_leaving_hook("policies", let_go, list_held_pushes)
