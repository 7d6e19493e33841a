"""Runs of somebody who leaves the team: those that wait are stopped, one that trains goes on. Runs of a team that is deleted: none may be open."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from lab.lib.folders import remove_folder
from lab.teams.accounts.models import Team, User
from lab.teams.people import departures, team_deletion
from lab.teams.people.departures import MemberHolding
from lab.training.runs import live
from lab.training.runs.models import ACTIVE, OPEN, Run, RunQuerySet, Status
from lab.training.runs.store_deletions import request_store_deletions
from lab.training.runs.stored_checkpoints import name_run

NAMED = 5  # runs that a sentence names before it counts the rest


def register_run_hooks() -> None:
    departures.register_leaving_hook("runs", stop_waiting, describe_held_runs)
    team_deletion.HINDRANCES.register("runs", still_open)
    team_deletion.CLEARERS.register("run folders", make_run_folder_clearer)


def filter_waiting_runs(team: Team, user: User) -> RunQuerySet:
    return Run.objects.of(team).filter(created_by=user, status__in=(Status.QUEUED, Status.LOST)).order_by("number")


def stop_waiting(team: Team, user: User) -> None:
    for run in filter_waiting_runs(team, user):
        if run.request_stop():
            Run.objects.same_row(run).filter(status=Status.STOPPED).update(reason=f"stopped: {user.email} left the team while the run was queued")
            transaction.on_commit(lambda run=run: live.publish_state(Run.objects.same_row(run).get()))  # type: ignore[misc]


def describe_held_runs(team: Team, user: User) -> list[MemberHolding]:
    queued = list(filter_waiting_runs(team, user))
    training = list(Run.objects.of(team).filter(created_by=user, status__in=ACTIVE).order_by("number"))
    holdings = []
    if queued:
        holdings.append(
            MemberHolding(
                f"{format_run_count(queued, 'queued run')} {'are' if len(queued) > 1 else 'is'} stopped: {format_run_names(queued)}. "
                "Anyone may resume them."
            )
        )
    if training:
        holdings.append(
            MemberHolding(
                f"{format_run_count(training, 'run')} that {'train' if len(training) > 1 else 'trains'} now goes on: {format_run_names(training)}.",
                True,
            )
        )
    return holdings


def format_run_count(runs: list[Run], noun: str) -> str:
    return f"{len(runs)} {noun}{'' if len(runs) == 1 else 's'}"


def format_run_names(runs: list[Run]) -> str:
    rest = len(runs) - NAMED
    return ", ".join(str(run) for run in runs[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def still_open(team: Team) -> str:
    runs = list(Run.objects.of(team).filter(status__in=OPEN).order_by("number"))
    if not runs:
        return ""
    return f"{format_run_count(runs, 'run')} {'are' if len(runs) > 1 else 'is'} queued or training: {format_run_names(runs)}. Stop them first."


def make_run_folder_clearer(team: Team) -> Callable[[], None]:
    """What the runs wrote; on the disk that this process sees."""
    runs = list(Run.objects.filter(team=team).only("pk"))
    folders, names = [run.folder for run in runs], [name_run(run.pk) for run in runs]

    def clear() -> None:
        for folder in folders:
            remove_folder(folder.parent, folder.name)
        request_store_deletions(names)

    return clear
