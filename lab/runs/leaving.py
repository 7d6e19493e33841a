"""Runs of somebody who leaves the team: those that wait are stopped, one that trains goes on. Runs of a team that is deleted: none may be open."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from lab.accounts.models import Team, User
from lab.lib.folders import remove
from lab.people import deleting, leaving
from lab.people.leaving import Held
from lab.runs import live
from lab.runs.models import ACTIVE, OPEN, Run, RunQuerySet, Status

NAMED = 5  # runs that a sentence names before it counts the rest


def register() -> None:
    leaving.register(stop_waiting, holds)
    deleting.HINDRANCES.append(still_open)
    deleting.CLEARERS.append(folders)


def waiting(team: Team, user: User) -> RunQuerySet:
    return Run.objects.of(team).filter(created_by=user, status__in=(Status.QUEUED, Status.LOST)).order_by("number")


def stop_waiting(team: Team, user: User) -> None:
    for run in waiting(team, user):
        if run.request_stop():
            Run.objects.filter(pk=run.pk, status=Status.STOPPED).update(reason=f"stopped: {user.email} left the team while it waited")
            transaction.on_commit(lambda key=run.pk: live.publish_state(Run.objects.get(pk=key)))  # type: ignore[misc]


def holds(team: Team, user: User) -> list[Held]:
    queued = list(waiting(team, user))
    training = list(Run.objects.of(team).filter(created_by=user, status__in=ACTIVE).order_by("number"))
    found = []
    if queued:
        found.append(Held(f"{counted(queued, 'queued run')} {'are' if len(queued) > 1 else 'is'} stopped: {named(queued)}. Anybody may resume them."))
    if training:
        found.append(Held(f"{counted(training, 'run')} that {'train' if len(training) > 1 else 'trains'} now goes on: {named(training)}.", True))
    return found


def counted(runs: list[Run], noun: str) -> str:
    return f"{len(runs)} {noun}{'' if len(runs) == 1 else 's'}"


def named(runs: list[Run]) -> str:
    rest = len(runs) - NAMED
    return ", ".join(str(run) for run in runs[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def still_open(team: Team) -> str:
    runs = list(Run.objects.of(team).filter(status__in=OPEN).order_by("number"))
    if not runs:
        return ""
    return f"{counted(runs, 'run')} {'are' if len(runs) > 1 else 'is'} queued or training: {named(runs)}. Stop them first."


def folders(team: Team) -> Callable[[], None]:
    """What the runs wrote; on the disk that this process sees."""
    found = [run.folder for run in Run.objects.of(team).only("pk")]

    def clear() -> None:
        for folder in found:
            remove(folder.parent, folder.name)

    return clear
