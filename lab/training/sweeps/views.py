"""The pages of sweeps. Each starts from the request's team; what belongs to another is not found."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.teams.accounts.requests import LabRequest
from lab.training.ablations import from_form
from lab.training.ablations.starts import list_start_choices
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.problem_words import format_problem_sentence
from lab.training.runs.stack import build_method_chips, stack_of
from lab.training.sweeps import launch
from lab.training.sweeps.checks import MOST_PARALLEL, MOST_RUNS, MOST_SEED
from lab.training.sweeps.leaderboard import RANK, build_leaderboard
from lab.training.sweeps.models import Direction, Sampler, Sweep, SweepState
from lab.training.sweeps.plan import SweepPlan, examine_plan, read_plan
from lab.training.sweeps.scores import METRICS
from trainers.contract.spec import SpecError

SHOWN = 100  # newest sweeps in the list


@require_safe
def list_sweeps(request: LabRequest) -> HttpResponse:
    rows = Sweep.objects.of(request.team).counted().select_related("author").order_by("-created_at")[:SHOWN]
    return TemplateResponse(request, "sweeps/list.html", {"room": "sweeps", "rows": rows, "metrics": METRICS})


def launch_sweep(request: LabRequest) -> HttpResponse:
    """What to start from, the form (GET, or a POST that only asks: ``act`` is not "launch"), and launching it."""
    data = request.POST if request.method == "POST" else request.GET
    spec = None
    if from_form.is_form(request):
        spec = from_form.spec_of(request)
        if spec is None:
            messages.error(request, "A multi-stage recipe cannot be swept; sweep from the run of one of its stages.")
            return redirect("launch-recipe", recipe=data["recipe"])
    plan = read_plan(request.team, request.user, data, spec)
    if plan is None:
        return show_starts(request)
    if data.get("part") == "plan":
        return TemplateResponse(request, "sweeps/new.html#plan", {"plan": examine_plan(plan, data, preflight=False)})
    if request.method != "POST" or data.get("act") != "launch":
        return show_plan(request, plan)
    plan = examine_plan(plan, data, preflight=True)
    if plan.problems:
        return show_plan(request, plan, status=422)
    for warning in plan.warnings:
        messages.warning(request, warning)
    try:
        url = act_once_per_token(request, f"sweep/{data.get('token', '')[:64]}", lambda: start_sweep(request, plan.sweep))
    except SpecError as error:
        return show_plan(request, replace(plan, problems=tuple(error.problems)), status=422)
    return redirect(url)


def show_starts(request: LabRequest) -> HttpResponse:
    """Recipes and runs that a sweep can start from."""
    return TemplateResponse(request, "sweeps/starts.html", {"room": "sweeps", **list_start_choices(request.team)})


def show_plan(request: LabRequest, plan: SweepPlan, status: int = 200) -> HttpResponse:
    context = {
        "room": "sweeps",
        "plan": plan,
        "token": secrets.token_urlsafe(16),
        "stack": build_method_chips(stack_of(plan.sweep.spec)),
        "samplers": Sampler.choices,
        "directions": Direction.choices,
        "metrics": METRICS.values(),
        "most": {"runs": MOST_RUNS, "parallel": MOST_PARALLEL, "seed": MOST_SEED},
    }
    return TemplateResponse(request, "sweeps/new.html", context, status=status)


def start_sweep(request: LabRequest, sweep: Sweep) -> str:
    launch.create_sweep(sweep)
    queued = sweep.trials.count()
    messages.success(request, f"The sweep has started: {queued} run{'' if queued == 1 else 's'} queued.")
    return reverse("sweep", args=[sweep.pk])


def sweep_of(request: LabRequest, sweep_id: Any) -> Sweep:
    """The team's sweep, or 404."""
    return get_object_or_404(Sweep.objects.of(request.team).select_related("author", "runner", "source", "team"), pk=sweep_id)


@require_safe
def show_sweep(request: LabRequest, sweep_id: Any) -> HttpResponse:
    """Progress and trials; ``?part=live`` only what changes while runs train."""
    sweep = sweep_of(request, sweep_id)
    context = {
        "room": "sweeps",
        "sweep": sweep,
        "board": build_leaderboard(sweep, request.GET.get("sort", RANK)),
        "stack": build_method_chips(stack_of(sweep.spec)),
        "is_running": sweep.state == SweepState.RUNNING,
        "seeds_again": launch.SEEDS_AGAIN,
        "token": secrets.token_urlsafe(16),
    }
    part = "#live" if request.GET.get("part") == "live" else ""
    return TemplateResponse(request, f"sweeps/detail.html{part}", context)


@require_POST
def stop_sweep(request: LabRequest, sweep_id: Any) -> HttpResponse:
    stopped = launch.stop_sweep(sweep_of(request, sweep_id))
    messages.info(request, "The sweep launches nothing more; its runs are stopping and saving." if stopped else "The sweep was not running.")
    return redirect("sweep", sweep_id=sweep_id)


@require_POST
def continue_sweep(request: LabRequest, sweep_id: Any) -> HttpResponse:
    continued = launch.continue_sweep(sweep_of(request, sweep_id), request.user)
    messages.info(request, "The sweep continues." if continued else "The sweep was not stopped.")
    return redirect("sweep", sweep_id=sweep_id)


@require_POST
def launch_best_again(request: LabRequest, sweep_id: Any) -> HttpResponse:
    """The best trial's values with further seeds, as a sweep of its own."""
    sweep = sweep_of(request, sweep_id)
    best = build_leaderboard(sweep).best
    if best is None:
        messages.error(request, "No trial has finished yet, so there is no best one.")
        return redirect("sweep", sweep_id=sweep_id)
    again = launch.build_best_again(sweep, best.trial, request.user)
    try:
        return redirect(act_once_per_token(request, f"sweep-again/{request.POST.get('token', '')[:64]}", lambda: start_sweep(request, again)))
    except SpecError as error:
        messages.error(request, " ".join(format_problem_sentence(problem) for problem in error.problems))
        return redirect("sweep", sweep_id=sweep_id)


@require_POST
def delete_sweep(request: LabRequest, sweep_id: Any) -> HttpResponse:
    """The sweep goes, its runs stay."""
    launch.delete_sweep_record(sweep_of(request, sweep_id))
    messages.success(request, "Sweep deleted. Its runs are still in the list of runs.")
    return redirect("sweeps")
