"""The usage page, the form of quotas, the export, and what launching shows of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from lab.accounts.models import Team
from lab.accounts.roles import may
from lab.audit.recording import record
from lab.lib.downloads import Lines, attachment, csv_safe
from lab.runs.views.request import LabRequest
from lab.usage import figures, quotas
from lab.usage.forms import QuotaForm
from lab.usage.limits import quota_of, save
from lab.usage.models import Quota, RunStorage, Storage
from lab.usage.months import Month
from lab.usage.wins import wins

SHOWN = 50  # lines of a breakdown
LARGEST = 5  # runs by storage
CSV_COLUMNS = ("month", "run", "name", "person", "project", "recipe", "gpu_hours", "compute_hours", "cost", "currency")


@require_safe
def index(request: LabRequest) -> HttpResponse:
    """``?month=2026-11`` and ``?by=`` person, project, recipe or run."""
    month, by = Month.read(request.GET.get("month", "")) or Month.now(), request.GET.get("by", "person")
    by = by if by in figures.BY else "person"
    quota = quota_of(request.team)
    found = figures.pieces(request.team, month)
    lines = figures.breakdown(request.team, month, found, by)
    days = figures.days(found, month)
    context = {
        "room": "usage",
        "standing": quotas.standing(request.team, quota),
        "quota": quota,
        "may_manage": may(request, "usage.manage"),
        "month": month,
        "later": month.next if month < Month.now() else None,
        "by": by,
        "choices": figures.BY.items(),
        "lines": [(line, line.cost(quota)) for line in lines[:SHOWN]],
        "more": max(0, len(lines) - SHOWN),
        "total": (whole := figures.total(lines)),
        "total_cost": whole.cost(quota),
        "days": days,
        "chart": {"days": [f"{day:%Y-%m-%d}" for day, _, _ in days], "gpu": [gpu for _, gpu, _ in days], "compute": [one for _, _, one in days]},
        "stored": Storage.objects.filter(team=request.team).first(),
        "largest": largest(request.team),
        "wins": wins(request.team, quota),
    }
    return render(request, "usage/page.html", context)


def largest(team: Team) -> list[tuple[RunStorage, int]]:
    stored = RunStorage.objects.filter(run__team=team).select_related("run").order_by("-checkpoints")[:LARGEST]
    return [(one, one.checkpoints + one.other) for one in stored]


@require_http_methods(["GET", "HEAD", "POST"])
def limits(request: LabRequest) -> HttpResponse:
    """The form of quotas and prices; POST saves them, and runs that were held go on by themselves."""
    form = QuotaForm.of(quota_of(request.team), request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        changed = save(request.team, form)
        messages.success(request, "The quotas are saved. Runs that have room now start by themselves." if changed else "Nothing was changed.")
        return redirect("usage")
    context = {"room": "usage", "form": form, "standing": quotas.standing(request.team)}
    return render(request, "usage/limits.html", context, status=422 if form.errors else 200)


@require_safe
def export(request: LabRequest) -> StreamingHttpResponse:
    """The month's runs as CSV."""
    month, quota = Month.read(request.GET.get("month", "")) or Month.now(), quota_of(request.team)
    found = figures.pieces(request.team, month)
    lines = figures.breakdown(request.team, month, found, "run")
    runs = {piece.lease.number: piece.lease for piece in found}
    record("usage.export", team=request.team, label=f"usage of {month.title}", runs=len(lines), format="csv")

    def rows() -> Iterator[str]:
        writer = csv.writer(Lines())
        yield writer.writerow(CSV_COLUMNS)
        for line in lines:
            yield writer.writerow(cells(line, runs, month, quota))

    return attachment(request, rows(), f"usage-{month}.csv", "text/csv; charset=utf-8")


def cells(line: figures.Line, runs: dict[int, Any], month: Month, quota: Quota) -> list[Any]:
    [number] = line.runs
    lease, cost = runs[number], line.cost(quota)
    run = lease.run
    project = run.project.name if run and run.project else ""
    texts = [run.name if run else figures.GONE, str(lease.user or ""), project, lease.recipe]
    hours = [round(line.gpu_hours, 4), round(line.compute_hours, 4)]
    return [str(month), number, *map(csv_safe, texts), *hours, "" if cost is None else round(cost, 2), quota.currency if cost is not None else ""]


@require_safe
def left(request: LabRequest) -> HttpResponse:
    """A piece of the launch pages: what the team has left."""
    found = quotas.standing(request.team)
    held = quotas.why(found, "gpu", found.gpu_hours.limit is not None and quotas.takes_gpus("gpu"))
    return render(request, "usage/left.html", {"standing": found, "held": held[:1].upper() + held[1:]})
