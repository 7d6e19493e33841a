"""What-if questions of somebody who leaves the team and that no worker has begun: they are not worked out."""

from __future__ import annotations

from django.db.models import QuerySet
from django.db.models.functions import Now

from lab.rollouts.replay.models import Replay, ReplayStatus
from lab.teams.accounts.models import Team, User
from lab.teams.people import departures
from lab.teams.people.departures import MemberHolding


def register_replay_hooks() -> None:
    departures.register_leaving_hook("replay", drop_waiting_replays, list_held_replays)


def select_waiting_replays(team: Team, user: User) -> QuerySet[Replay]:
    return Replay.objects.of(team).filter(user=user, status=ReplayStatus.QUEUED)


def drop_waiting_replays(team: Team, user: User) -> None:
    select_waiting_replays(team, user).update(
        status=ReplayStatus.FAILED, error="The person who started it has left the team. Run it again.", finished_at=Now()
    )


def list_held_replays(team: Team, user: User) -> list[MemberHolding]:
    count = select_waiting_replays(team, user).count()
    return [MemberHolding(f"{count} waiting what-if question{'s are' if count > 1 else ' is'} dropped.")] if count else []
