"""What a team's files and rows weigh, worked out by a chore: a few run folders a round, never while a page waits.

A run that is open, or that has ended since, is weighed every minute; any other once a day, because retention may have deleted checkpoints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

from django.db import connection, transaction
from django.db.models import F, Model, Q, Sum
from django.db.models.functions import Now

from lab.data.datasets import uploads
from lab.lib.registry import Registry
from lab.rollouts.trajectories.models import Rollout, RolloutTokens, RolloutWords
from lab.teams.accounts.models import Team
from lab.training.runs.models import OPEN, LogChunk, MetricChunk, Run
from lab.training.runs.references import datasets_of
from lab.watching.usage.models import RunStorage, Storage

LOCK = 0x5703A6E  # PostgreSQL advisory lock: one worker weighs at a time
EVERY_SECONDS = 20.0  # of a worker, between two rounds
OFTEN, SELDOM = timedelta(minutes=1), timedelta(days=1)
RUNS, TEAMS = 40, 20  # of a round
WEIGHTS = ("checkpoints", "final", "policy")  # folders of a run whose files are weights
OTHER_ROWS: Registry[Callable[[Team], int]] = Registry("kind of rows")  # bytes of a team's rows of rooms further right
LARGE = (Rollout, RolloutTokens, RolloutWords, MetricChunk, LogChunk)  # tables that grow with rollouts
TABLES: Registry[type[Model]] = Registry("table that grows with rollouts")  # those of rooms further right


class StorageMeter:
    def __init__(self) -> None:
        self.next_at = 0.0

    def round(self) -> None:
        if time.monotonic() < self.next_at:
            return
        self.next_at = time.monotonic() + EVERY_SECONDS
        weigh_storage()


def weigh_storage() -> bool:
    """One round; False when another worker is at it."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
            if not cursor.fetchone()[0]:
                return False
        for run in due_runs():
            weights, other = folder_bytes(run.folder)
            RunStorage.objects.update_or_create(run=run, defaults={"checkpoints": weights, "other": other, "measured_at": Now()})
        add_up(due_teams())
    return True


def due_runs() -> list[Run]:
    now = Now()
    changed = Q(storage=None) | Q(storage__measured_at__lt=F("finished_at"))
    alive = Q(status__in=OPEN, storage__measured_at__lt=now - OFTEN)
    due = Run.across_teams.filter(changed | alive | Q(storage__measured_at__lt=now - SELDOM))
    return list(due.only("pk", "team").order_by(F("storage__measured_at").asc(nulls_first=True))[:RUNS])


def due_teams() -> list[Team]:
    fresh = Storage.across_teams.filter(measured_at__gte=Now() - OFTEN).values("team")
    return list(Team.objects.exclude(pk__in=fresh).order_by(F("storage__measured_at").asc(nulls_first=True))[:TEAMS])


def add_up(teams: Iterable[Team]) -> None:
    row_bytes = bytes_of_a_rollout() if teams else 0.0
    for team in teams:
        sums = RunStorage.objects.filter(run__team=team).aggregate(weights=Sum("checkpoints"), other=Sum("other"))
        rollouts = Run.objects.filter(team=team).aggregate(sum=Sum("rollouts"))["sum"] or 0
        values = {
            "checkpoints": sums["weights"] or 0,
            "spools": sums["other"] or 0,
            "datasets": dataset_bytes(team),
            "database": round(rollouts * row_bytes) + sum(count(team) for count in OTHER_ROWS.values()),
            "measured_at": Now(),
        }
        Storage.objects.update_or_create(team=team, defaults=values)


def bytes_of_a_rollout(*tables: type[Model]) -> float:
    """Bytes of the tables (all large ones, where none is given) with their indexes, by stored rollout of all teams."""
    names = [model._meta.db_table for model in tables or (*LARGE, *TABLES.values())]
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name", [names])
        total = float(cursor.fetchone()[0] or 0)
    rollouts = Run.across_teams.aggregate(sum=Sum("rollouts"))["sum"] or 0
    return total / rollouts if rollouts else 0.0


def folder_bytes(folder: Path) -> tuple[int, int]:
    """(bytes of weights, bytes of everything else) below the folder. Links are not followed; what vanishes meanwhile counts nothing."""
    weights = other = 0
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".uploads")]
        top = Path(base).relative_to(folder).parts[:1]
        count = sum(file_bytes(os.path.join(base, name)) for name in names)
        if top and top[0] in WEIGHTS:
            weights += count
        else:
            other += count
    return weights, other


def dataset_bytes(team: Team) -> int:
    """Of frozen versions, files that were put there by hand, and uploads."""
    return sum(folder_bytes(datasets_of(team))) + sum(folder_bytes(uploads.folder_of(team)))


def file_bytes(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


weigher = StorageMeter()


def weigh_due_storage() -> None:
    """The chore. Raises database errors; the caller tries again later."""
    weigher.round()
