"""A sweep launches in somebody's name: when they leave the team it stops, and whoever continues it launches the rest."""

from __future__ import annotations

from lab.teams.accounts.models import Team, User
from lab.teams.people import departures
from lab.teams.people.departures import MemberHolding
from lab.training.sweeps.launch import stop_sweep
from lab.training.sweeps.models import Sweep, SweepQuerySet, SweepState


def register_sweep_hooks() -> None:
    departures.register_leaving_hook("sweeps", stop_sweeps_of, describe_held_sweeps)


def filter_running_sweeps(team: Team, user: User) -> SweepQuerySet:
    return Sweep.objects.of(team).filter(runner=user, state=SweepState.RUNNING).order_by("created_at")


def stop_sweeps_of(team: Team, user: User) -> None:
    """Not one that a worker holds, which may be waiting for the team's row that is locked here: it stops itself before it launches again."""
    for sweep in filter_running_sweeps(team, user).select_for_update(skip_locked=True, of=("self",)):
        stop_sweep(sweep, f"{user.email}, for whom it launched, left the team")


def describe_held_sweeps(team: Team, user: User) -> list[MemberHolding]:
    return [MemberHolding(f"The sweep “{sweep.name}” is stopped. Anyone may continue it.") for sweep in filter_running_sweeps(team, user)]
