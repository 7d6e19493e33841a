"""The usage page, the form of quotas, the export, and what launching shows of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from lab.lib.downloads import Lines, csv_safe, stream_attachment
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.teams.audit.recording import record_audit_entry
from lab.watching.usage import figures, quotas
from lab.watching.usage.forms import QuotaForm
from lab.watching.usage.limits import quota_of, save_quota_limits
from lab.watching.usage.models import Quota, RunStorage, Storage
from lab.watching.usage.months import Month
from lab.watching.usage.win_costs import list_win_costs, total_by_recipe

SHOWN = 50  # lines of a breakdown
LARGEST = 5  # runs by storage
CSV_COLUMNS = ("month", "run", "name", "person", "project", "recipe", "gpu_hours", "compute_hours", "cost", "currency")


@require_safe
def show_usage(request: LabRequest) -> HttpResponse:
    """``?month=2026-11`` and ``?by=`` person, project, recipe or run."""
    month, by = Month.read(request.GET.get("month", "")) or Month.now(), request.GET.get("by", "person")
    by = by if by in figures.BY else "person"
    quota = quota_of(request.team)
    pieces = figures.clip_leases_to_month(request.team, month)
    lines = figures.build_usage_breakdown(request.team, month, pieces, by)
    days = figures.sum_hours_by_day(pieces, month)
    context = {
        "room": "usage",
        "standing": quotas.compute_quota_standing(request.team, quota),
        "quota": quota,
        "may_manage": has_team_permission(request, "usage.manage"),
        "month": month,
        "later": month.next if month < Month.now() else None,
        "by": by,
        "choices": figures.BY.items(),
        "lines": [(line, line.cost(quota)) for line in lines[:SHOWN]],
        "more": max(0, len(lines) - SHOWN),
        "total": (whole := figures.sum_usage_lines(lines)),
        "total_cost": whole.cost(quota),
        "days": days,
        "chart": {"days": [f"{day:%Y-%m-%d}" for day, _, _ in days], "gpu": [gpu for _, gpu, _ in days], "compute": [hours for _, _, hours in days]},
        "stored": Storage.objects.filter(team=request.team).first(),
        "largest": list_largest_runs(request.team),
        "wins": (wins := list_win_costs(request.team, quota)),
        "win_totals": total_by_recipe(wins, quota),
    }
    return render(request, "usage/page.html", context)


def list_largest_runs(team: Team) -> list[tuple[RunStorage, int]]:
    stored = RunStorage.objects.filter(run__team=team, run__binned_at=None).select_related("run").order_by("-checkpoints")[:LARGEST]
    return [(storage, storage.checkpoints + storage.other) for storage in stored]


@require_http_methods(["GET", "HEAD", "POST"])
def edit_usage_limits(request: LabRequest) -> HttpResponse:
    """The form of quotas and prices; POST saves them, and runs that were held go on by themselves."""
    form = QuotaForm.of(quota_of(request.team), request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        changed = save_quota_limits(request.team, form)
        messages.success(request, "Quotas saved. Waiting runs that now have room start automatically." if changed else "Nothing was changed.")
        return redirect("usage")
    context = {"room": "usage", "form": form, "standing": quotas.compute_quota_standing(request.team)}
    return render(request, "usage/limits.html", context, status=422 if form.errors else 200)


@require_safe
def export_usage(request: LabRequest) -> StreamingHttpResponse:
    """The month's runs as CSV."""
    month, quota = Month.read(request.GET.get("month", "")) or Month.now(), quota_of(request.team)
    pieces = figures.clip_leases_to_month(request.team, month)
    lines = figures.build_usage_breakdown(request.team, month, pieces, "run")
    runs = {piece.lease.number: piece.lease for piece in pieces}
    record_audit_entry("usage.export", team=request.team, label=f"usage of {month.title}", runs=len(lines), format="csv")

    def rows() -> Iterator[str]:
        writer = csv.writer(Lines())
        yield writer.writerow(CSV_COLUMNS)
        for line in lines:
            yield writer.writerow(build_usage_csv_row(line, runs, month, quota))

    return stream_attachment(request, rows(), f"usage-{month}.csv", "text/csv; charset=utf-8")


def build_usage_csv_row(line: figures.UsageLine, runs: dict[int, Any], month: Month, quota: Quota) -> list[Any]:
    [number] = line.runs
    lease, cost = runs[number], line.cost(quota)
    run = lease.run
    project = run.project.name if run and run.project else ""
    texts = [run.name if run else figures.GONE, str(lease.user or ""), project, lease.recipe]
    hours = [round(line.gpu_hours, 4), round(line.compute_hours, 4)]
    return [str(month), number, *map(csv_safe, texts), *hours, "" if cost is None else round(cost, 2), quota.currency if cost is not None else ""]


@require_safe
def show_quota_left(request: LabRequest) -> HttpResponse:
    """A piece of the launch pages: what the team has left. ``checked``: of the form, whose check says what would hold the run in its own queue."""
    standing = quotas.compute_quota_standing(request.team)
    limited = standing.gpu_hours.limit is not None
    held = "" if "checked" in request.GET else quotas.explain_quota_block(standing, "gpu", limited and quotas.takes_gpus("gpu"))
    return render(request, "usage/left.html", {"standing": standing, "held": held[:1].upper() + held[1:]})
