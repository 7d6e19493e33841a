"""Human votes against the order of a run's reward functions: a page, its chart's numbers (``?part=data``), and a panel of the overview."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.labelling.quality.reward_agreement import TOTAL, AgreementWindow, RewardColumn, build_agreement_columns
from lab.labelling.quality.votes import votes_of
from lab.teams.accounts.requests import LabRequest
from lab.training.runs import metrics
from lab.training.runs.header import build_run_header
from lab.training.runs.models import Run
from lab.training.runs.views.page import find_team_run

CURVE_POINTS = 200


@require_safe
def run_humans(request: LabRequest, run_id: UUID) -> HttpResponse:
    """``?part=panel`` is the overview's, ``?part=data`` the numbers of the chart; ``?reward=`` picks a reward function, default the total."""
    run = find_team_run(request, run_id)
    votes = votes_of(run)
    series = metrics.read_metric_series(run.pk, ["reward"]).get("reward") if votes else None
    columns = build_agreement_columns(votes, series)
    if request.GET.get("part") == "data":
        body = {"columns": [column_to_json(column) for column in columns], "curve": build_reward_curve(series)}
        return HttpResponse(msgspec.json.encode(body), content_type="application/json", headers={"Cache-Control": "no-store"})
    name = request.GET.get("reward", TOTAL)
    chosen = next((column for column in columns if column.name == name), columns[0] if columns else None)
    context = {
        "run": run,
        "columns": columns,
        "chosen": chosen,
        "votes": len(votes),
        "items": len({vote.item for vote in votes}),
        "gaps": [window for window in chosen.windows if window.gap] if chosen else [],
        "new_queue": new_queue(run),
        "disagreement_queue": new_queue(run, strategy="disagreement"),
    }
    if request.GET.get("part") == "panel":
        return render(request, "quality/humans_panel.html", context)
    return render(request, "quality/humans.html", {**build_run_header(run, "humans"), **context})


def new_queue(run: Run, **more: str) -> str:
    return f"{reverse('queue-new')}?{urlencode({'run': run.number, **more})}"


def column_to_json(column: RewardColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "share": msgspec.to_builtins(column.share),
        "ties": column.ties,
        "missing": column.missing,
        "windows": [window_json(window) for window in column.windows],
    }


def window_json(window: AgreementWindow) -> dict[str, Any]:
    share = window.share
    places = {"first": window.first, "last": window.last, "look": window.look, "reward": window.reward, "since": window.since}
    return {**places, "value": share.value, "low": share.low, "high": share.high, "n": share.n, "disagreeing": window.disagreeing}


def build_reward_curve(series: metrics.Series | None) -> dict[str, list[Any]]:
    """The run's mean reward by step, thinned to its extremes; what is not finite is a gap (null)."""
    if series is None:
        return {"steps": [], "values": []}
    thin = metrics.compute_envelope(series, CURVE_POINTS)
    return {"steps": thin.steps.tolist(), "values": [value if value - value == 0 else None for value in thin.values.tolist()]}
