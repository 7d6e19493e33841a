"""The figures of a month: hours a day, and hours, label minutes and cost by person, project, recipe or run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, FloatField, Sum, Value
from django.db.models.functions import Least

from lab.labelling.labels.models import Judgement, JudgementState
from lab.teams.accounts.models import Team, User
from lab.watching.usage import ledger
from lab.watching.usage.models import Lease, Quota
from lab.watching.usage.months import Month

BY = {"person": "Person", "project": "Project", "recipe": "Recipe", "run": "Run"}
LONGEST_LABEL = 600.0  # seconds that one label counts at most: a page left open is not work
NOBODY, NO_PROJECT, GONE = "command line or former member", "no project", "deleted run"


@dataclass
class UsageLine:
    """One row of a breakdown. ``run`` and ``project`` are ids to link to."""

    title: str
    gpu_hours: float = 0.0
    compute_hours: float = 0.0
    label_minutes: float = 0.0
    runs: set[int] = field(default_factory=set)
    run: UUID | None = None
    project: int | None = None

    def cost(self, quota: Quota) -> float | None:
        """In the team's currency; None without any price."""
        prices = ((self.gpu_hours, quota.gpu_hour_price), (self.compute_hours, quota.compute_hour_price))
        priced = [amount * price for amount, price in (*prices, (self.label_minutes, quota.label_minute_price)) if price is not None]
        return sum(priced) if priced else None

    def add(self, gpus: int, hours: float, number: int) -> None:
        if gpus:
            self.gpu_hours += gpus * hours
        else:
            self.compute_hours += hours
        self.runs.add(number)


@dataclass(frozen=True)
class LeasePiece:
    """A lease within the month."""

    lease: Lease
    start: datetime
    end: datetime

    @property
    def hours(self) -> float:
        return (self.end - self.start).total_seconds() / ledger.HOUR


def clip_leases_to_month(team: Team, month: Month) -> list[LeasePiece]:
    leases = ledger.of_month(team, month).select_related("user", "run__project").defer("run__spec", "run__special_tokens", "run__latest")
    return [LeasePiece(lease, max(lease.started_at, month.start), min(lease.seen_at, month.end)) for lease in leases]


def sum_hours_by_day(pieces: Iterable[LeasePiece], month: Month) -> list[tuple[datetime, float, float]]:
    """(day, GPU-hours, compute hours) of every day of the month."""
    count = (month.end - month.start).days
    gpu, compute = [0.0] * count, [0.0] * count
    for piece in pieces:
        for day, hours in by_day(piece, month):
            if piece.lease.gpus:
                gpu[day] += hours * piece.lease.gpus
            else:
                compute[day] += hours
    return [(month.start + timedelta(days=day), gpu[day], compute[day]) for day in range(count)]


def by_day(piece: LeasePiece, month: Month) -> Iterator[tuple[int, float]]:
    """(day of the month from 0, hours) of a piece that may last over midnight."""
    start = piece.start
    while start < piece.end:
        day = (start - month.start).days
        end = min(piece.end, month.start + timedelta(days=day + 1))
        yield day, (end - start).total_seconds() / ledger.HOUR
        start = end


def build_usage_breakdown(team: Team, month: Month, pieces: Iterable[LeasePiece], by: str) -> list[UsageLine]:
    """Lines of the month, the largest first; ``by`` is a key of BY."""
    lines: defaultdict[object, UsageLine] = defaultdict(lambda: UsageLine(""))
    for piece in pieces:
        key, title = key_of(piece.lease, by)
        line = lines[key]
        line.title = line.title or title
        line.add(piece.lease.gpus, piece.hours, piece.lease.number)
        if by == "run":
            line.run = piece.lease.run_id
        if by == "project":
            line.project = key if isinstance(key, int) else None
    if by in ("person", "project"):
        for key, title, minutes in sum_label_minutes(team, month, by):
            line = lines[key]
            line.title, line.label_minutes = line.title or title, minutes
            line.project = key if by == "project" else None
    return sorted(lines.values(), key=lambda line: (-line.gpu_hours, -line.compute_hours, -line.label_minutes, line.title))


def key_of(lease: Lease, by: str) -> tuple[object, str]:
    run = lease.run
    if by == "person":
        return lease.user_id, str(lease.user) if lease.user else NOBODY
    if by == "project":
        project = run.project if run else None
        return (project.pk, project.name) if project else (None, NO_PROJECT)
    if by == "recipe":
        return lease.recipe, lease.recipe
    return lease.number, f"#{lease.number} {run.name if run else GONE}"


def sum_label_minutes(team: Team, month: Month, by: str) -> list[tuple[int | None, str, float]]:
    """(id, name, label minutes) of people or projects."""
    judgements = Judgement.objects.of(team).filter(created_at__gte=month.start, created_at__lt=month.end)
    key = "user" if by == "person" else "queue__project"
    sums = dict(judgements.exclude(state=JudgementState.WITHDRAWN).order_by().values_list(key).annotate(sum=sum_label_seconds()))
    if by == "person":
        names = {user.pk: str(user) for user in User.objects.filter(pk__in=sums)}
    else:
        names = dict(team.projects.values_list("pk", "name"))
    return [(key, names.get(key, NO_PROJECT), total / 60) for key, total in sums.items()]


def sum_label_seconds() -> Sum:
    """Of labels, as a sum; each counts at most LONGEST_LABEL."""
    return Sum(Least(F("seconds"), Value(LONGEST_LABEL)), output_field=FloatField())


def sum_usage_lines(lines: Iterable[UsageLine]) -> UsageLine:
    whole = UsageLine("Total")
    for line in lines:
        whole.gpu_hours += line.gpu_hours
        whole.compute_hours += line.compute_hours
        whole.label_minutes += line.label_minutes
        whole.runs |= line.runs
    return whole
