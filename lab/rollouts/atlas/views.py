"""Where in its answers, and when, the policy of a run was undecided; and how reward and length were spread over the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from lab.rollouts.atlas.atlas_query import BY, FIELDS, QUANTITIES, SCALES, AtlasQuery
from lab.rollouts.atlas.distributions import compute_field_distribution
from lab.rollouts.atlas.extremes import find_extreme_tokens
from lab.rollouts.atlas.grids import build_token_grid
from lab.rollouts.trajectories.steps import PHASE_LABELS, list_offered_phases, resolve_phase_and_step
from lab.training.runs.header import build_run_header
from lab.training.runs.models import Run
from lab.training.runs.stack import stack_of
from lab.training.runs.views.page import find_team_run

FRESH = {"Cache-Control": "no-store"}


@require_safe
def run_atlas(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The page; scripts fetch its maps."""
    run = find_team_run(request, run_id)
    query = AtlasQuery.read(request)
    phase, steps = resolve_phase_and_step(run, query.phase, query.step)
    weighed = bool(stack_of(run.spec).methods) or query.of == "weight"
    context = {
        "steps": steps,
        "following": query.step is None,
        "phases": [(name, PHASE_LABELS[name], f"?phase={name}", name == phase) for name in list_offered_phases(run, phase)],
        "phase": phase,
        "phase_label": PHASE_LABELS[phase],
        "other_phases": [
            (name, PHASE_LABELS[name])
            for name in list_offered_phases(run)
            if name != phase and resolve_phase_and_step(run, name, None)[1].step is not None
        ],
        "query": query,
        "quantities": [(name, quantity) for name, quantity in QUANTITIES.items() if name != "weight" or weighed],
        "by": BY.items(),
        "scales": SCALES.items(),
        "fields": FIELDS.items(),
    }
    return render(request, "atlas/atlas.html", {**build_run_header(run, "atlas"), **context})


def in_phase(request: HttpRequest, run: Run) -> AtlasQuery:
    """What is asked for, in the phase that the page shows for it."""
    query = AtlasQuery.read(request)
    return replace(query, phase=resolve_phase_and_step(run, query.phase, query.step)[0])


@require_safe
def atlas_grid(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    return JsonResponse(build_token_grid(run, in_phase(request, run)), headers=FRESH)


@require_safe
def atlas_values(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    return JsonResponse(compute_field_distribution(run, in_phase(request, run)), headers=FRESH)


@require_safe
def atlas_tokens(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The tokens behind a cell, as a fragment: ``?steps=41-43`` with ``positions=12-15`` or ``kind=digit``."""
    run = find_team_run(request, run_id)
    query = in_phase(request, run)
    context = {"run": run, "query": query, "quantity": QUANTITIES[query.of], "extremes": find_extreme_tokens(run, query) if query.steps else None}
    return render(request, "atlas/tokens.html", context)
