"""Runs beside each other: the page, the points of its charts, and what its search for runs finds."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.rollouts.comparison import chart_choice, configs, environments, series
from lab.rollouts.comparison.compared_runs import MOST, ChosenRuns, read_chosen_runs, style_of
from lab.rollouts.comparison.summaries import RunSummary, list_figure_heads, summarize_compared_runs
from lab.teams.accounts.roles import has_team_permission
from lab.training.ablations.intervals import t_quantile
from lab.training.runs import listing
from lab.training.runs.models import Run
from lab.training.runs.snapshot import count_samples_per_step

FOUND = 12  # runs a search shows


@require_safe
def show_run_comparison(request: HttpRequest) -> HttpResponse:
    """The page; ``?part=found`` only what the search finds, ``?part=live`` only what changes while runs train. Chart settings in the address are
    the script's.
    """
    chosen = read_chosen_runs(request.team, request.GET.getlist("run"))  # type: ignore[attr-defined]
    words = request.GET.get("find", "").replace("\0", "").strip()[: listing.LONGEST_SEARCH]
    context: dict[str, Any] = {
        "chosen": chosen,
        "words": words,
        "matching_runs": search_addable_runs(request, chosen, words),
        "most": MOST,
        "room": "compare",
    }
    if request.GET.get("part") == "found":
        return render(request, "comparison/matching_runs.html", context)
    rows = configs.build_settings_table(chosen.runs)
    groups = configs.list_groupable_settings(rows)
    environment = environments.build_environment_table(chosen.runs)
    came_to = summarize_compared_runs(chosen.runs)
    heads = list_figure_heads(chosen.runs)
    context |= {
        "leads": has_team_permission(request, "label.lead"),
        "entries": [(run, style_of(run.number), chosen.without(run)) for run in chosen.runs],
        "rows": rows,
        "changed": sum(row.changed for row in rows),
        "groups": groups,
        "environment": environment,
        "environment_changed": any(row.changed for row in environment),
        "summaries": came_to,
        "figure_heads": heads,
        "page_data": {
            "page": reverse("compare"),
            "series": reverse("compare-series"),
            "report": reverse("report-add") + "?kind=chart" if has_team_permission(request, "reports.write") else "",
            "samples": any(count_samples_per_step(run) for run in chosen.runs),
            "figures": heads,
            "runs": [describe_compared_run(summary, groups, index) for index, summary in enumerate(came_to)],
            "charts": chart_choice.build_metric_charts(chosen.runs),
            "quantiles": [t_quantile(degrees_of_freedom) for degrees_of_freedom in range(1, MOST)],
        },
    }
    return render(request, "comparison/live.html" if request.GET.get("part") == "live" else "comparison/compare.html", context)


def search_addable_runs(request: HttpRequest, chosen: ChosenRuns, words: str) -> list[tuple[Run, str]]:
    """Runs that could be added, newest first, with the address that adds them."""
    query = listing.RunQuery({"q": words} if words else {})
    runs = listing.filter_matching_runs(request.team, query).exclude(number__in=chosen.numbers)  # type: ignore[attr-defined]
    return [(run, chosen.adding(run)) for run in runs[:FOUND]]


def describe_compared_run(summary: RunSummary, groups: list[configs.ComparedSetting], index: int) -> dict[str, Any]:
    """A run as the scripts know it; ``config`` has only settings that differ."""
    style = style_of(summary.run.number)
    return {
        "number": summary.run.number,
        "name": summary.run.name,
        "color": style.color,
        "dash": style.dash,
        "figures": summary.figures,
        "open": summary.run.is_open,
        "config": {setting.key: setting.values[index] for setting in groups},
    }


@require_safe
def compare_series(request: HttpRequest) -> JsonResponse:
    """Points of ``?name=`` (repeatable) of ``?run=``; ``x`` is the axis, ``aligned=1`` for averaging over runs."""
    chosen = read_chosen_runs(request.team, request.GET.getlist("run"))  # type: ignore[attr-defined]
    axis = request.GET.get("x", "")
    names = [name for name in request.GET.getlist("name") if "\0" not in name and not name.startswith("@")]
    body = series.build_metric_series(chosen.runs, names, axis if axis in series.AXES else "step", request.GET.get("aligned") == "1")
    return JsonResponse({"series": body}, headers={"Cache-Control": "no-store"})
