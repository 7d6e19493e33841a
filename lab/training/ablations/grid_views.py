"""The pages of grids: a new one, its matrix, and its figures as a file. Each starts from the request's team."""

from __future__ import annotations

import csv
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

from django.contrib import messages
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from lab.lib.downloads import Lines, csv_safe, stream_attachment
from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry
from lab.training.ablations import from_form, launch
from lab.training.ablations.budgets import HELP, KINDS
from lab.training.ablations.figures import compute_ablation_progress
from lab.training.ablations.grid_checks import MOST_GRID_RUNS
from lab.training.ablations.grid_figures import (
    CSV_COLUMNS,
    build_grid_figures,
    choose_quantity,
    list_grid_quantities,
    serialize_csv_rows,
)
from lab.training.ablations.grid_matrix import build_matrix_panels, list_level_changes, list_runs_rows, read_matrix_choice
from lab.training.ablations.grid_plan import GridPlan, examine_grid_plan, list_field_values, read_grid_plan
from lab.training.ablations.judge_differences import list_grid_judge_differences
from lab.training.ablations.models import Ablation, AblationRun
from lab.training.ablations.presets.registry import PRESETS, write_preset_form
from lab.training.ablations.starts import list_start_choices
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.stack import build_method_chips, stack_of
from trainers.contract.spec import SpecError


def launch_grid(request: LabRequest) -> HttpResponse:
    """What to start from, the form (GET, or a POST that only asks: ``act`` is not "launch"), and launching it."""
    data: QueryDict = request.POST if request.method == "POST" else request.GET
    if "preset" in request.GET and request.method != "POST":
        data = write_preset_form(request.GET["preset"])
    spec = None
    if from_form.is_form(request):
        spec = from_form.spec_of(request)
        if spec is None:
            messages.error(request, "A multi-stage recipe has no grid; start from the run of one of its stages.")
            return redirect("launch-recipe", recipe=data["recipe"])
    plan = read_grid_plan(request.team, request.user, data, spec)
    if plan is None:
        return show_grid_starts(request)
    if data.get("part") == "plan":
        return TemplateResponse(request, "ablations/grid_new.html#plan", {"plan": examine_grid_plan(plan)})
    if request.method != "POST" or data.get("act") != "launch":
        return show_grid_plan(request, examine_grid_plan(plan) if plan.is_started else plan)
    plan = examine_grid_plan(plan, preflight=True)
    if plan.problems:
        return show_grid_plan(request, plan, status=422)
    for warning in plan.warnings:
        messages.warning(request, warning)
    try:
        url = act_once_per_token(request, f"grid/{data.get('token', '')[:64]}", lambda: create_from_grid_plan(request, plan))
    except SpecError as error:
        return show_grid_plan(request, replace(plan, problems=tuple(error.problems)), status=422)
    return redirect(url)


def create_from_grid_plan(request: LabRequest, plan: GridPlan) -> str:
    grid = launch.create_grid(plan.grid)
    messages.success(request, f"{plan.runs} runs are queued.")
    return reverse("ablation", args=[grid.pk])


def show_grid_starts(request: LabRequest) -> HttpResponse:
    """Runs and recipes that a grid can start from."""
    context = {"room": "ablations", "presets": PRESETS.values(), **list_start_choices(request.team)}
    return TemplateResponse(request, "ablations/grid_starts.html", context)


def show_grid_plan(request: LabRequest, plan: GridPlan, status: int = 200) -> HttpResponse:
    context = {
        "room": "ablations",
        "plan": plan,
        "token": secrets.token_urlsafe(16),
        "stack": build_method_chips(stack_of(plan.grid.spec)),
        "kinds": [(kind, label, HELP.get(kind, "")) for kind, label in KINDS.items()],
        "fields": list_field_values(plan.grid.spec),
        "most_runs": MOST_GRID_RUNS,
    }
    return TemplateResponse(request, "ablations/grid_new.html", context, status=status)


def show_grid(request: LabRequest, grid: Ablation, members: Sequence[AblationRun]) -> HttpResponse:
    """Progress and matrix; ``?part=live`` only what changes while runs train. The address says what the matrix shows."""
    quantities = list_grid_quantities(grid, members)
    figures = build_grid_figures(grid, members, choose_quantity(quantities, request.GET.get("quantity", "")))
    choice = read_matrix_choice(request.GET.dict(), figures.factors)
    query = request.GET.copy()
    query.pop("part", None)
    context = {
        "room": "ablations",
        "ablation": grid,
        "stack": build_method_chips(stack_of(grid.spec)),
        "figures": figures,
        "budget": figures.budget,
        "quantities": quantities,
        "reads": any(factor.is_reading for factor in figures.factors),
        "choice": choice,
        "factors": list(enumerate(figures.factors)),
        "changes": [(change, change.write_label(figures.factors)) for change in list_level_changes(figures.factors)],
        "change_label": choice.change.write_label(figures.factors) if choice.change else "",
        "panels": build_matrix_panels(figures, choice),
        "rows": list_runs_rows(figures),
        "transfers": figures.list_transfers(),
        "judge_differences": list_grid_judge_differences(figures),
        "progress": compute_ablation_progress([member.run for member in members]),
        "query": query.urlencode(),
        "token": secrets.token_urlsafe(16),
    }
    part = "#live" if request.GET.get("part") == "live" else ""
    return TemplateResponse(request, f"ablations/grid.html{part}", context)


def export_figures_csv(request: LabRequest, ablation: Ablation) -> StreamingHttpResponse:
    """One row a cell and seed, of the quantity that the address names; of an ablation, one a variant and seed."""
    members = ablation.in_order()
    quantities = list_grid_quantities(ablation, members)
    figures = build_grid_figures(ablation, members, choose_quantity(quantities, request.GET.get("quantity", "")))
    rows = serialize_csv_rows(figures)
    record_audit_entry("ablation.export", ablation, rows=len(rows), format="csv")
    writer = csv.writer(Lines())

    def lines() -> Iterator[str]:
        yield writer.writerow([*(csv_safe(factor.name) for factor in figures.factors), *CSV_COLUMNS])
        for row in rows:
            yield writer.writerow([csv_safe(value) if isinstance(value, str) else value for value in row])

    return stream_attachment(request, lines(), f"{ablation.noun}-{ablation.pk}.csv", "text/csv; charset=utf-8", reads_database=False)
