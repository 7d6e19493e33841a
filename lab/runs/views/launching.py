"""Launching from the browser: recipes, the form, its check, and the demo."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.text import slugify
from django.views.decorators.http import require_POST

from lab.catalog.catalog import Catalog, CatalogError, catalog
from lab.runs import differences, drafts, launch
from lab.runs.drafts import Draft
from lab.runs.examination import Examination, examine
from lab.runs.forms import LaunchForm
from lab.runs.models import Run
from lab.runs.once import once
from lab.runs.views.request import LabRequest
from lab.workers.models import Worker
from trainers.spec import SpecError

TOKEN_LENGTH = 64


def recipes(request: LabRequest) -> HttpResponse:
    """The recipes; with ``?after=`` those that can go on from a run. ``?clone=`` goes straight to the form."""
    clone, after = run_of(request, request.GET.get("clone")), run_of(request, request.GET.get("after"))
    if clone is not None:
        return redirect(f"{reverse('launch-recipe', args=[slugify(clone.recipe) or drafts.CUSTOM])}?clone={clone.pk}")
    offered = [recipe for recipe in catalog().recipes if after is None or len(recipe["stages"]) == 1]
    context = {
        "room": "launch",
        "recipes": offered,
        "after": after,
        "checkpoint": request.GET.get("checkpoint", ""),
        "token": token_of(request),
        "any_runs": Run.objects.of(request.team).exists(),
    }
    return TemplateResponse(request, "runs/recipes.html", context)


@require_POST
def demo(request: LabRequest) -> HttpResponse:
    """The demo chain with its own settings, in one press."""
    url = once(request, f"demo/{token_of(request)}", lambda: run_url(launch.launch_recipe(request.team, request.user, "demo", name="Demo")[0]))
    messages.success(request, "The demo is queued: three runs, each starts when the one before has finished.")
    return redirect(url)


def form(request: LabRequest, recipe: str) -> HttpResponse:
    """The form of a recipe (GET), and launching it (POST)."""
    params = request.POST if request.method == "POST" else request.GET
    draft = draft_of(request, recipe, params)
    if request.method != "POST":
        return show(request, LaunchForm(request.team, catalog(), draft))
    filled = LaunchForm(request.team, catalog(), draft, flat(request.POST))
    found = examine(filled)
    if found.problems:
        return show(request, filled, found, status=422)
    if found.broken:
        messages.warning(request, f"The check before the launch could not be made: {found.broken}. The trainer checks again when it starts.")
    try:
        url = once(request, f"launch/{token_of(request)}", lambda: run_url(launched(request, filled)))
    except SpecError as error:
        for problem in error.problems:
            filled.refuse(0, problem)
        return show(request, filled, found, status=422)
    return redirect(url)


def launched(request: LabRequest, filled: LaunchForm) -> Run:
    """The first of the runs that the form stands for."""
    specs, draft = filled.specs(), filled.draft
    if draft.is_chain:
        with transaction.atomic():
            return launch.launch_recipe(request.team, request.user, draft.recipe, {"stages": specs}, filled.name)[0]
    return launch.launch(request.team, request.user, specs[0], filled.name, parent=filled.parent, cloned_from=draft.clone)


@require_POST
def preflight(request: LabRequest) -> HttpResponse:
    """The panel beside the form: what is wrong, what it means, samples, the rewards' dry run, the command."""
    draft = draft_of(request, request.POST.get("recipe", ""), request.POST)
    filled = LaunchForm(request.team, catalog(), draft, flat(request.POST))
    return TemplateResponse(request, "runs/launch.html#preflight", {"form": filled, **panel(filled, examine(filled))})


def panel(filled: LaunchForm, found: Examination | None) -> dict[str, Any]:
    return {
        "found": found,
        "changes": differences.of_form(filled),
        "command": differences.command(filled),
        "spec_json": differences.specs_as_json(differences.complete_specs(filled)),
        "no_worker": not Worker.objects.alive().filter(draining=False).exists(),
    }


def show(request: LabRequest, filled: LaunchForm, found: Examination | None = None, status: int = 200) -> HttpResponse:
    context = {
        "room": "launch",
        "form": filled,
        "draft": filled.draft,
        "token": token_of(request),
        **panel(filled, found),
    }
    return TemplateResponse(request, "runs/launch.html", context, status=status)


def draft_of(request: LabRequest, recipe: str, params: QueryDict) -> Draft:
    """What the form starts from. A run of another team, or a recipe that does not exist, is not found."""
    known: Catalog = catalog()
    clone, after = run_of(request, params.get("clone")), run_of(request, params.get("after"))
    try:
        if clone is not None:
            return drafts.of_clone(known, clone)
        if after is not None:
            return drafts.of_next_stage(known, recipe, after, params.get("checkpoint", ""))
        return drafts.of_recipe(known, recipe)
    except CatalogError as error:
        raise Http404(str(error)) from None


def run_of(request: LabRequest, key: str | None) -> Run | None:
    if not key:
        return None
    try:
        return get_object_or_404(Run.objects.of(request.team), pk=uuid.UUID(key))
    except ValueError:
        raise Http404("no such run") from None


def flat(data: QueryDict) -> dict[str, str]:
    """The inputs of the form; NUL, which no field may hold, becomes visible instead of an error of the database."""
    return {key: value.replace("\0", "\u2400") for key, value in data.items() if isinstance(value, str)}


def token_of(request: LabRequest) -> str:
    """What makes sending a form twice the same act; new for a form that is shown first."""
    return request.POST.get("token", "")[:TOKEN_LENGTH] or secrets.token_urlsafe(16)


def run_url(run: Run) -> str:
    return reverse("run", args=[run.pk])
