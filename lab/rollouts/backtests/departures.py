"""Backtests of somebody who leaves the team and that no worker has begun: they are not run."""

from __future__ import annotations

from django.db.models import QuerySet
from django.db.models.functions import Now

from lab.rollouts.backtests.models import Backtest, BacktestStatus
from lab.teams.accounts.models import Team, User
from lab.teams.people import departures
from lab.teams.people.departures import MemberHolding


def register_backtest_hooks() -> None:
    departures.register_leaving_hook("backtest", drop_waiting_backtests, list_held_backtests)


def select_waiting_backtests(team: Team, user: User) -> QuerySet[Backtest]:
    return Backtest.objects.of(team).filter(user=user, status=BacktestStatus.QUEUED)


def drop_waiting_backtests(team: Team, user: User) -> None:
    select_waiting_backtests(team, user).update(
        status=BacktestStatus.FAILED, error="The person who started it has left the team. Run it again.", finished_at=Now()
    )


def list_held_backtests(team: Team, user: User) -> list[MemberHolding]:
    count = select_waiting_backtests(team, user).count()
    return [MemberHolding(f"{count} waiting backtest{'s are' if count > 1 else ' is'} dropped.")] if count else []
