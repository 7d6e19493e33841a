"""The ledger of leases: written by the supervisor at the claim, with every heartbeat and at the end; read as hours of a month."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import DurationField, ExpressionWrapper, F, QuerySet, Sum, Value
from django.db.models.functions import Greatest, Least, Now

from lab.lib.clock import database_now
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from lab.training.workers.models import Worker
from lab.watching.usage.models import Lease
from lab.watching.usage.months import Month

HOUR = 3600.0


def gpus_of(worker: str) -> int:
    """GPUs of the worker of that name, all of which a run of it holds, whether it uses them or not."""
    found = Worker.objects.filter(name=worker).first()
    return found.gpus if found else 0


def open_lease(run: Run, owner: str, gpus: int) -> Lease:
    """The worker begins to hold the run; called in the transaction of the claim."""
    now = database_now()
    return Lease.objects.create(
        team_id=run.team_id,
        run=run,
        number=run.number,
        user_id=run.created_by_id,
        recipe=run.recipe,
        owner=owner,
        gpus=gpus,
        started_at=now,
        seen_at=now,
    )


def refresh_leases(owner: str) -> None:
    Lease.across_teams.filter(owner=owner, ended_at=None).update(seen_at=Now())


def close_leases(owner: str) -> None:
    now = Now()
    Lease.across_teams.filter(owner=owner, ended_at=None).update(seen_at=now, ended_at=now)


def of_month(team: Team | int, month: Month) -> QuerySet[Lease]:
    """Leases that touch the month."""
    return Lease.objects.filter(team=team, started_at__lt=month.end, seen_at__gte=month.start)


def build_overlap_duration(start: datetime, end: datetime) -> Any:
    """How long a lease lay within the time from ``start`` to ``end``, as an expression."""
    inside = Least(F("seen_at"), Value(end)) - Greatest(F("started_at"), Value(start))
    return ExpressionWrapper(inside, output_field=DurationField())


def sum_month_hours(team: Team | int, month: Month) -> tuple[float, float]:
    """(GPU-hours, compute hours of workers without a GPU) of the month."""
    sums = of_month(team, month).order_by().values("gpus").annotate(time=Sum(build_overlap_duration(month.start, month.end)))
    by_gpus = {row["gpus"]: row["time"].total_seconds() / HOUR for row in sums}
    return sum(gpus * time for gpus, time in by_gpus.items()), by_gpus.get(0, 0.0)


def build_lease_duration() -> Any:
    """How long a lease lasted, as an expression."""
    return ExpressionWrapper(F("seen_at") - F("started_at"), output_field=DurationField())
