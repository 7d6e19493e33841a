"""What the team has used of what it may use, by month, and its limits."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, require_permission
from lab.edges.api.problems import FieldProblem, make_invalid_problem, make_validation_problem
from lab.edges.api.queue_bodies import of_form
from lab.watching.usage import figures, quotas
from lab.watching.usage.forms import GIB, PRICES, QUEUE, QuotaForm
from lab.watching.usage.limits import quota_of, save_quota_limits
from lab.watching.usage.models import Quota, Storage
from lab.watching.usage.months import Month

router = make_router("Usage and quotas")
PLAIN = ("concurrent_runs", "gpu_hours", "warn_percent", *PRICES)  # fields of a quota that the form has as they are
PARTS = ("checkpoints", "spools", "datasets", "database")


class UseOut(Schema):
    name: Literal["running", "gpu_hours", "storage"] = Field(description="Concurrent runs, GPU-hours of this month, bytes of storage.")
    used: float
    limit: float | None = Field(description="null: no limit.")
    share: float | None = Field(description="Share of the limit.")
    near: bool = Field(description="At or above the share at which people are warned.")
    full: bool = Field(description="The limit is reached: runs wait.")


class StorageOut(Schema):
    """Bytes, as last measured."""

    checkpoints: int
    spools: int
    datasets: int
    database: int = Field(description="The team's share of the tables, estimated.")
    measured_at: datetime | None


class LimitsOut(Schema):
    concurrent_runs: int | None
    gpu_hours: float | None = Field(description="Per calendar month, UTC.")
    storage_bytes: int | None
    queues: list[str] | None = Field(description="Celery queues that its runs may use; null: every queue.")
    warn_percent: int
    gpu_hour_price: float | None
    compute_hour_price: float | None = Field(description="Price of an hour of a worker without a GPU.")
    label_minute_price: float | None
    currency: str


class UsageOut(Schema):
    month: str = Field(examples=["2026-11"])
    uses: list[UseOut]
    compute_hours: float = Field(description="Hours of workers without a GPU, this month.")
    storage: StorageOut
    limits: LimitsOut


class LineOut(Schema):
    title: str
    run: UUID | None
    project: int | None
    runs: int
    gpu_hours: float
    compute_hours: float
    label_minutes: float
    cost: float | None = Field(description="null if no price is set.")


class DayOut(Schema):
    day: str = Field(examples=["2026-11-21"])
    gpu_hours: float
    compute_hours: float


class MonthOut(Schema):
    month: str
    currency: str
    total: LineOut
    lines: list[LineOut] = Field(description="Largest first.")
    days: list[DayOut]


class LimitsIn(RequestBody):
    """Omitted fields stay unchanged; null removes a limit or a price."""

    concurrent_runs: int | None = Field(None, examples=[4])
    gpu_hours: float | None = Field(None, examples=[40])
    storage_bytes: int | None = Field(None, ge=0, le=2**62)
    queues: list[str] | None = None
    warn_percent: int = 80
    gpu_hour_price: float | None = None
    compute_hour_price: float | None = None
    label_minute_price: float | None = None
    currency: str = Field("EUR", max_length=10)


@router.get("/usage", auth=require_permission("usage.read"), response=UsageOut, summary="Current usage")
def get_usage(request: HttpRequest) -> object:
    """With the team's limits. A run over a limit is not refused: it waits, and its `waits` gives the reason."""
    team = caller_of(request).team
    quota = quota_of(team)
    standing = quotas.compute_quota_standing(team, quota)
    return {
        "month": str(standing.month),
        "uses": standing.uses,
        "compute_hours": standing.compute_hours,
        "storage": Storage.objects.filter(team=team).first() or Storage(),
        "limits": quota,
    }


@router.get("/usage/month", auth=require_permission("usage.read"), response=MonthOut, summary="Usage of a month")
def get_month(
    request: HttpRequest,
    month: str = Query("", max_length=20, description="Default: this month.", examples=["2026-11"]),
    by: Literal["person", "project", "recipe", "run"] = Query("person", description="What the lines are grouped by."),
) -> object:
    """Hours of training, minutes of labelling and cost, and the hours of each day."""
    team = caller_of(request).team
    chosen = Month.read(month) if month else Month.now()
    if chosen is None:
        raise make_invalid_problem("month", f"“{month}” is not a month", "use year and month, such as 2026-11")
    quota, leases = quota_of(team), figures.clip_leases_to_month(team, chosen)
    lines = figures.build_usage_breakdown(team, chosen, leases, by)
    return {
        "month": str(chosen),
        "currency": quota.currency,
        "total": serialize_usage_line(figures.sum_usage_lines(lines), quota),
        "lines": [serialize_usage_line(line, quota) for line in lines],
        "days": [{"day": f"{day:%Y-%m-%d}", "gpu_hours": gpu, "compute_hours": rest} for day, gpu, rest in figures.sum_hours_by_day(leases, chosen)],
    }


def serialize_usage_line(line: figures.UsageLine, quota: Quota) -> dict[str, Any]:
    fields = {name: getattr(line, name) for name in ("title", "run", "project", "gpu_hours", "compute_hours", "label_minutes")}
    return {**fields, "runs": len(line.runs), "cost": line.cost(quota)}


@router.patch("/usage/limits", auth=require_permission("usage.manage"), response=LimitsOut, summary="Set quotas and prices")
def set_limits(request: HttpRequest, given: LimitsIn) -> object:
    """Waiting runs that then fit start automatically; a quota never ends a run that is training."""
    team = caller_of(request).team
    if given.queues is not None:
        check_queues(given.queues)
    form = QuotaForm.of(quota_of(team), as_form(quota_of(team), given.model_dump(exclude_unset=True)))
    if not form.is_valid():
        renamed = {"storage": "storage_bytes"}
        raise make_validation_problem(
            FieldProblem(field=renamed.get(problem.field, problem.field), message=problem.message) for problem in of_form(form)
        )
    save_quota_limits(team, form)
    return quota_of(team)


def check_queues(names: list[str]) -> None:
    """What the form's one line of text could not tell apart. Raises ApiProblem."""
    if not names:
        raise make_invalid_problem("queues", "contains no queue", "give at least one, or null for every queue")
    for index, name in enumerate(names):
        if not QUEUE.fullmatch(name):
            raise make_invalid_problem(
                f"queues.{index}", f"“{name[:50]}” is not a queue name", "use letters, digits, dot, dash and underscore, at most 50"
            )


def as_form(quota: Quota, sent: dict[str, Any]) -> dict[str, str]:
    """What the browser would send: the quota with the changes."""
    values = {name: getattr(quota, name) for name in (*PLAIN, "storage_bytes", "queues")} | sent
    stored = values["storage_bytes"]
    values_plain = {name: "" if values[name] is None else str(values[name]) for name in PLAIN}
    return {**values_plain, "storage": "" if stored is None else repr(stored / GIB), "queues": ", ".join(values["queues"] or [])}
