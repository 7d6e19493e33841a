"""The pages of ablations. Each starts from the request's team; what belongs to another is not found."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.requests import LabRequest
from lab.training.ablations import from_form, launch
from lab.training.ablations.figures import build_ablation_figures, compute_ablation_progress
from lab.training.ablations.grid_views import export_figures_csv, show_grid
from lab.training.ablations.models import Ablation
from lab.training.ablations.plan import AblationPlan, read_plan
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.models import Run
from lab.training.runs.stack import build_method_chips, stack_of
from trainers.contract.spec import SpecError

SHOWN = 100  # newest ablations in the list


@require_safe
def list_ablations(request: LabRequest) -> HttpResponse:
    newest = Ablation.objects.of(request.team).counted().select_related("author").order_by("-created_at")[:SHOWN]
    rows = [(ablation, build_method_chips(stack_of(ablation.spec))) for ablation in newest]
    candidate = Run.objects.of(request.team).listed().filter(spec__methods__0__isnull=False).order_by("-number").first()
    return TemplateResponse(request, "ablations/list.html", {"room": "ablations", "rows": rows, "candidate": candidate})


def launch_ablation(request: LabRequest) -> HttpResponse:
    """What would be launched (GET, or a POST that only asks: ``act`` is not "launch"), and launching it."""
    data = request.POST if request.method == "POST" else request.GET
    if from_form.is_form(request):
        spec = from_form.spec_of(request)
        if spec is None:
            messages.error(request, "A multi-stage recipe cannot be ablated; ablate the run of one of its stages.")
            return redirect("launch-recipe", recipe=data["recipe"])
        return show_plan(request, read_plan(request.team, data, spec))
    plan = read_plan(request.team, data)
    if data.get("part") == "plan":
        return TemplateResponse(request, "ablations/new.html#plan", {"plan": plan})
    if request.method != "POST" or data.get("act") != "launch":
        return show_plan(request, plan)
    if plan.problems:
        return show_plan(request, plan, status=422)
    try:
        url = act_once_per_token(request, f"ablate/{data.get('token', '')[:64]}", lambda: create_from_plan(request, plan))
    except SpecError as error:
        return show_plan(request, replace(plan, problems=tuple(str(problem) for problem in error.problems)), status=422)
    return redirect(url)


def create_from_plan(request: LabRequest, plan: AblationPlan) -> str:
    ablation = launch.create_ablation(request.team, request.user, plan.name, plan.spec, plan.seeds, plan.source)
    messages.success(request, f"{plan.runs} runs are queued.")
    return reverse("ablation", args=[ablation.pk])


def show_plan(request: LabRequest, plan: AblationPlan, status: int = 200) -> HttpResponse:
    context = {"room": "ablations", "plan": plan, "token": secrets.token_urlsafe(16), "stack": build_method_chips(stack_of(plan.spec))}
    return TemplateResponse(request, "ablations/new.html", context, status=status)


def ablation_of(request: LabRequest, ablation_id: Any) -> Ablation:
    """The team's ablation, or 404."""
    return get_object_or_404(Ablation.objects.of(request.team).select_related("author", "source", "team"), pk=ablation_id)


@require_safe
def show_ablation(request: LabRequest, ablation_id: Any) -> HttpResponse:
    """Progress and figures; ``?part=live`` only what changes while runs train."""
    ablation = ablation_of(request, ablation_id)
    members = ablation.in_order()
    if ablation.is_grid:
        return show_grid(request, ablation, members)
    context = {
        "room": "ablations",
        "ablation": ablation,
        "stack": build_method_chips(stack_of(ablation.spec)),
        "figures": build_ablation_figures(ablation, members),
        "progress": compute_ablation_progress([member.run for member in members]),
        "seeds": sorted({member.seed for member in members}),
        "token": secrets.token_urlsafe(16),
    }
    part = "#live" if request.GET.get("part") == "live" else ""
    return TemplateResponse(request, f"ablations/detail.html{part}", context)


@require_safe
def export_ablation(request: LabRequest, ablation_id: Any) -> StreamingHttpResponse:
    return export_figures_csv(request, ablation_of(request, ablation_id))


@require_POST
def add_ablation_seeds(request: LabRequest, ablation_id: Any) -> HttpResponse:
    """The same variants with further seeds."""
    ablation = ablation_of(request, ablation_id)
    text = request.POST.get("seeds", "")
    count = parse_whole_number(text) or 0

    def act() -> str:
        launch.add_seeds(ablation, request.user, count)
        messages.success(request, f"{count} more seed{'' if count == 1 else 's'} of every variant queued.")
        return reverse("ablation", args=[ablation.pk])

    try:
        return redirect(act_once_per_token(request, f"ablate-more/{ablation.pk}/{request.POST.get('token', '')[:64]}", act))
    except SpecError as error:
        messages.error(request, " ".join(problem.message for problem in error.problems))
        return redirect("ablation", ablation_id=ablation.pk)


@require_POST
def stop_ablation(request: LabRequest, ablation_id: Any) -> HttpResponse:
    stopped = launch.request_ablation_stop(ablation_of(request, ablation_id))
    messages.info(
        request, f"{stopped} run{'' if stopped == 1 else 's'} are stopping and saving." if stopped else "No run of it is waiting or training."
    )
    return redirect("ablation", ablation_id=ablation_id)


@require_POST
def resume_ablation(request: LabRequest, ablation_id: Any) -> HttpResponse:
    """Every run that was stopped, failed or lost goes on from its last checkpoint."""
    resumed = launch.resume_ablation_runs(ablation_of(request, ablation_id))
    messages.info(request, f"{resumed} run{'' if resumed == 1 else 's'} queued again." if resumed else "No run of it can be resumed.")
    return redirect("ablation", ablation_id=ablation_id)


@require_POST
def delete_ablation(request: LabRequest, ablation_id: Any) -> HttpResponse:
    """The ablation goes, its runs stay."""
    ablation = ablation_of(request, ablation_id)
    launch.delete_ablation_record(ablation)
    messages.success(request, f"{ablation.noun.capitalize()} deleted. Its runs are still in the list of runs.")
    return redirect("ablations")
