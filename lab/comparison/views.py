"""Runs beside each other: the page, the points of its charts, and what its search for runs finds."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.ablations.intervals import t_quantile
from lab.accounts.roles import may
from lab.comparison import charted, configs, series
from lab.comparison.chosen import MOST, Chosen, read, style_of
from lab.comparison.summaries import Summary, summaries
from lab.runs import listing
from lab.runs.models import Run

FOUND = 12  # runs a search shows


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """The page; ``?part=found`` only what the search finds. Chart settings in the address are the script's."""
    chosen = read(request.team, request.GET.getlist("run"))  # type: ignore[attr-defined]
    words = request.GET.get("find", "").replace("\0", "").strip()[: listing.LONGEST_SEARCH]
    context: dict[str, Any] = {"chosen": chosen, "words": words, "found": found(request, chosen, words), "most": MOST, "room": "compare"}
    if request.GET.get("part") == "found":
        return render(request, "comparison/found.html", context)
    rows = configs.table(chosen.runs)
    groups = configs.groupable(rows)
    came_to = summaries(chosen.runs)
    context |= {
        "leads": may(request, "label.lead"),
        "entries": [(run, style_of(run.number), chosen.without(run)) for run in chosen.runs],
        "rows": rows,
        "changed": sum(row.changed for row in rows),
        "groups": groups,
        "summaries": came_to,
        "page_data": {
            "series": reverse("compare-series"),
            "runs": [described(summary, groups, place) for place, summary in enumerate(came_to)],
            "charts": charted.charts(chosen.runs),
            "quantiles": [t_quantile(freedom) for freedom in range(1, MOST)],
        },
    }
    return render(request, "comparison/compare.html", context)


def found(request: HttpRequest, chosen: Chosen, words: str) -> list[tuple[Run, str]]:
    """Runs that could be added, newest first, with the address that adds them."""
    query = listing.Query({"q": words} if words else {})
    runs = listing.matching(request.team, query).exclude(number__in=chosen.numbers)  # type: ignore[attr-defined]
    return [(run, chosen.adding(run)) for run in runs[:FOUND]]


def described(summary: Summary, groups: list[configs.Setting], place: int) -> dict[str, Any]:
    """A run as the scripts know it; ``config`` has only settings that differ."""
    style = style_of(summary.run.number)
    return {
        "number": summary.run.number,
        "name": summary.run.name,
        "color": style.color,
        "dash": style.dash,
        "figures": summary.figures,
        "config": {setting.key: setting.values[place] for setting in groups},
    }


@require_safe
def compare_series(request: HttpRequest) -> JsonResponse:
    """Points of ``?name=`` (repeatable) of ``?run=``; ``x`` is the axis, ``aligned=1`` for averaging over runs."""
    chosen = read(request.team, request.GET.getlist("run"))  # type: ignore[attr-defined]
    axis = request.GET.get("x", "")
    names = [name for name in request.GET.getlist("name") if "\0" not in name and not name.startswith("@")]
    body = series.answer(chosen.runs, names, axis if axis in series.AXES else "step", request.GET.get("aligned") == "1")
    return JsonResponse({"series": body}, headers={"Cache-Control": "no-store"})
