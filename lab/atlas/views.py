"""Where in its answers, and when, the policy of a run was undecided; and how reward and length were spread over the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from lab.atlas.asked import BY, FIELDS, QUANTITIES, SCALES, Asked
from lab.atlas.distributions import distribution
from lab.atlas.extremes import extremes
from lab.atlas.grids import grid
from lab.runs.header import header
from lab.runs.models import Run
from lab.runs.stack import stack_of
from lab.runs.views.page import run_of
from lab.trajectories.steps import PHASE_LABELS, phases, resolve

FRESH = {"Cache-Control": "no-store"}


@require_safe
def run_atlas(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The page; scripts fetch its maps."""
    run = run_of(request, run_id)
    asked = Asked.read(request)
    phase, steps = resolve(run, asked.phase, asked.step)
    weighed = bool(stack_of(run.spec).methods) or asked.of == "weight"
    context = {
        "steps": steps,
        "following": asked.step is None,
        "phases": [(name, PHASE_LABELS[name], f"?phase={name}", name == phase) for name in phases(run, phase)],
        "phase": phase,
        "phase_label": PHASE_LABELS[phase],
        "other_phases": [(name, PHASE_LABELS[name]) for name in phases(run) if name != phase and resolve(run, name, None)[1].step is not None],
        "asked": asked,
        "quantities": [(name, one) for name, one in QUANTITIES.items() if name != "weight" or weighed],
        "by": BY.items(),
        "scales": SCALES.items(),
        "fields": FIELDS.items(),
    }
    return render(request, "atlas/atlas.html", {**header(run, "atlas"), **context})


def in_phase(request: HttpRequest, run: Run) -> Asked:
    """What is asked for, in the phase that the page shows for it."""
    asked = Asked.read(request)
    return replace(asked, phase=resolve(run, asked.phase, asked.step)[0])


@require_safe
def atlas_grid(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = run_of(request, run_id)
    return JsonResponse(grid(run, in_phase(request, run)), headers=FRESH)


@require_safe
def atlas_values(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = run_of(request, run_id)
    return JsonResponse(distribution(run, in_phase(request, run)), headers=FRESH)


@require_safe
def atlas_tokens(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The tokens behind a cell, as a fragment: ``?steps=41-43`` with ``positions=12-15`` or ``kind=digit``."""
    run = run_of(request, run_id)
    asked = in_phase(request, run)
    context = {"run": run, "asked": asked, "quantity": QUANTITIES[asked.of], "found": extremes(run, asked) if asked.steps else None}
    return render(request, "atlas/tokens.html", context)
