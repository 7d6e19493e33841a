"""Launching from the browser: recipes, the form with its method section, its check, and the demo."""

from __future__ import annotations

import secrets
import uuid
from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_POST

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts import projects
from lab.teams.accounts.requests import LabRequest
from lab.training.catalog.catalog import Catalog, CatalogError, load_catalog
from lab.training.catalog.models import RecipeVersion, SavedRecipe
from lab.training.runs import drafts, follow_ups, form_changes, launch, placement, references, team_tasks
from lab.training.runs.drafts import Draft
from lab.training.runs.form_checks import Examination, examine_launch_form
from lab.training.runs.form_parts import Stage
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.runs.forms import LaunchForm
from lab.training.runs.models import Run
from lab.training.runs.recipe_families import find_family, group_recipe_families
from lab.training.runs.recipe_times import measure_recipe_times
from lab.training.workers.models import Worker
from trainers.contract.spec import SpecError

TOKEN_LENGTH = 64
UNDO = timedelta(days=7)  # how long a deleted recipe is offered for restoring


def list_launch_recipes(request: LabRequest) -> HttpResponse:
    """The recipes; with ``?after=`` those that can go on from a run. ``?clone=`` goes straight to the form."""
    clone, after = find_requested_run(request, request.GET.get("clone")), find_requested_run(request, request.GET.get("after"))
    if outside := next((run for run in (clone, after) if run is not None and run.outside), None):
        return refuse_outside(request, outside)
    if clone is not None:
        return redirect(f"{reverse('launch-recipe', args=[slugify(clone.recipe) or drafts.CUSTOM])}?clone={clone.pk}")
    catalog = load_catalog()
    times = measure_recipe_times(request.team, catalog)
    offered = [
        {**recipe, "time": times.get(recipe["name"])}
        for recipe in catalog.recipes
        if not recipe.get("family") and (after is None or len(recipe["stages"]) == 1)
    ]
    context = {
        "room": "launch",
        "recipes": offered,
        "families": group_recipe_families(catalog.recipes) if after is None else [],
        "after": after,
        "checkpoint": request.GET.get("checkpoint", ""),
        "saved": RecipeVersion.objects.of(request.team).newest() if after is None else [],
        "deleted": SavedRecipe.objects.of(request.team).filter(deleted_at__gt=timezone.now() - UNDO) if after is None else [],
        "token": token_of(request),
        "any_runs": Run.objects.of(request.team).exists(),
        "project": projects.key_of(request.GET.get("project", "")),
        "task": team_tasks.find_team_task(request.team, request.GET.get("task", "")),
    }
    return TemplateResponse(request, "runs/recipes.html", context)


@require_POST
def launch_demo(request: LabRequest) -> HttpResponse:
    """The demo chain with its own settings, in one press."""
    place = placement.Place(queue=placement.find_usual_queue(request.team))
    try:
        made = partial(launch.launch_recipe, request.team, request.user, "demo", name="Demo", place=place)
        url = act_once_per_token(request, f"demo/{token_of(request)}", lambda: run_url(made()[0]))
    except SpecError as error:
        messages.error(request, f"The demo was not launched: {error.problems[0].message}.")
        return redirect("launch")
    messages.success(request, "The demo is queued: three runs, each starting when the previous one has finished.")
    return redirect(url)


def show_launch_form(request: LabRequest, recipe: str) -> HttpResponse:
    """The form of a recipe (GET), and launching it (POST)."""
    params = request.POST if request.method == "POST" else request.GET
    draft = draft_of(request, recipe, params)
    if outside := next((run for run in (draft.clone, draft.after) if run is not None and run.outside), None):
        return refuse_outside(request, outside)
    if request.method != "POST":
        project = projects.clean_project_filter(request.team, request.GET.get("project", ""))
        initial = {"project": project} if project else {}
        if own := team_tasks.find_team_task(request.team, request.GET.get("task", "")):
            initial["task"] = own.key
        empty = LaunchForm(request.team, load_catalog(), draft, initial=initial)
        return render_launch_form(request, with_methods(empty, request.GET.getlist("add")))
    filled = LaunchForm(request.team, load_catalog(), draft, clean_form_inputs(request.POST))
    if "act" in request.POST:
        if not apply_reward_edit(filled, request.POST["act"]):
            apply_form_edit(filled, request.POST["act"])
        return render_launch_form(request, filled)
    examination = examine_launch_form(filled)
    if filled.refuse_unfinished() or examination.problems:
        return render_launch_form(request, filled, examination, status=422)
    if examination.broken:
        messages.warning(request, f"The pre-launch check failed to run: {examination.broken}. The trainer checks again when it starts.")
    try:
        url = act_once_per_token(request, f"launch/{token_of(request)}", lambda: run_url(launch_form_runs(request, filled)))
    except SpecError as error:
        for problem in error.problems:
            filled.refuse(0, problem)
        return render_launch_form(request, filled, examination, status=422)
    return redirect(url)


def with_methods(form: LaunchForm, names: list[str]) -> LaunchForm:
    """The form with methods of the catalogue put into their stages; what cannot be added is said on top."""
    for name in names:
        try:
            form.add(name)
        except Refusal as error:
            form.add_error(None, str(error))
    return form


def apply_form_edit(filled: LaunchForm, act: str) -> Stage:
    """Does what a button of the method section says; its stage. Anything else is not found."""
    try:
        return filled.edit(act)
    except ValueError:
        raise Http404("no such button") from None


def apply_reward_edit(filled: LaunchForm, act: str) -> bool:
    """Does what a button of More rewards says; whether it is one of those."""
    section, _, rest = act.partition(":")
    if section != "rewards":
        return False
    try:
        filled.more.edit(rest)
    except ValueError:
        raise Http404("no such button") from None
    return True


@require_POST
def compose_method_section(request: LabRequest) -> HttpResponse:
    """The method section of one stage, after a method was added, moved or removed, or another base chosen; or the section of more rewards."""
    draft = draft_of(request, request.POST.get("recipe", ""), request.POST)
    filled = LaunchForm(request.team, load_catalog(), draft, clean_form_inputs(request.POST))
    if apply_reward_edit(filled, request.POST.get("act", "")):
        return TemplateResponse(request, "runs/more_rewards.html", {"more": filled.more})
    before = names_in_stages(filled)
    stage = apply_form_edit(filled, request.POST.get("act", ""))
    return TemplateResponse(request, "runs/composer.html", {"stack": stage.stack, "said": describe_stack_change(before, names_in_stages(filled))})


def names_in_stages(form: LaunchForm) -> list[str]:
    return [card.name for stage in form.stages for card in (stage.stack.base_card, *stage.stack.cards)]


def describe_stack_change(before: list[str], after: list[str]) -> str:
    """What changed, for those who do not see it."""
    gone, come = [name for name in before if name not in after], [name for name in after if name not in before]
    if gone or come:
        return ", ".join([*(f"{name} removed" for name in gone), *(f"{name} added" for name in come)])
    return f"The order is now {', '.join(after[1:])}" if before != after else ""


def launch_form_runs(request: LabRequest, filled: LaunchForm) -> Run:
    """The first of the runs that the form stands for."""
    specs, draft = filled.specs(), filled.draft
    with transaction.atomic():
        if draft.is_chain:
            return launch.launch_recipe(request.team, request.user, draft.recipe, {"stages": specs}, filled.values["name"], place=filled.place)[0]
        run = launch.launch_run(
            request.team, request.user, specs[0], filled.values["name"], parent=filled.parent, cloned_from=draft.clone, place=filled.place
        )
        follow_ups.begin_following(filled, run, request.user)
        return run


@require_POST
def show_preflight_panel(request: LabRequest) -> HttpResponse:
    """The panel beside the form: what is wrong, what it means, samples, the rewards' dry run, the command."""
    draft = draft_of(request, request.POST.get("recipe", ""), request.POST)
    filled = LaunchForm(request.team, load_catalog(), draft, clean_form_inputs(request.POST))
    return TemplateResponse(request, "runs/launch.html#preflight", {"form": filled, **build_preflight_context(filled, examine_launch_form(filled))})


def build_preflight_context(filled: LaunchForm, examination: Examination | None) -> dict[str, Any]:
    return {
        "examination": examination,
        "changes": form_changes.of_form(filled),
        "command": form_changes.build_launch_command(filled),
        "spec_json": form_changes.specs_as_json(form_changes.complete_specs(filled)),
        "no_worker": not Worker.objects.taking_runs().training().exists(),
    }


def render_launch_form(request: LabRequest, filled: LaunchForm, examination: Examination | None = None, status: int = 200) -> HttpResponse:
    context = {
        "room": "launch",
        "form": filled,
        "draft": filled.draft,
        "family": None
        if filled.draft.clone or filled.draft.saved or filled.draft.after
        else find_family(filled.catalog.recipes, filled.draft.recipe),
        "following": follow_ups.load_following(filled),
        "token": token_of(request),
        **build_preflight_context(filled, examination),
    }
    return TemplateResponse(request, "runs/launch.html", context, status=status)


def draft_of(request: LabRequest, recipe: str, params: QueryDict) -> Draft:
    """What the form starts from. A run of another team, or a recipe that does not exist, is not found."""
    known: Catalog = load_catalog()
    clone, after = find_requested_run(request, params.get("clone")), find_requested_run(request, params.get("after"))
    try:
        if clone is not None:
            return drafts.of_clone(known, clone)
        if saved := find_saved_version(request, params.get("saved")):
            return drafts.of_saved(known, saved)
        if after is not None:
            return drafts.of_next_stage(known, recipe, after, params.get("checkpoint", ""))
        if world := params.get("world"):
            return drafts.of_world(known, recipe, world, params.getlist("add"))
        return drafts.of_recipe(known, recipe)
    except CatalogError as error:
        raise Http404(str(error)) from None


def refuse_outside(request: LabRequest, run: Run) -> HttpResponse:
    messages.error(request, f"{run} {references.OUTSIDE}: the lab can neither launch it again nor train on from it.")
    return redirect("run", run.pk)


def find_requested_run(request: LabRequest, key: str | None) -> Run | None:
    if not key:
        return None
    try:
        return get_object_or_404(Run.objects.of(request.team), pk=uuid.UUID(key))
    except ValueError:
        raise Http404("no such run") from None


def find_saved_version(request: LabRequest, key: str | None) -> RecipeVersion | None:
    """A version of a recipe that the team saved and did not delete."""
    if not key:
        return None
    pk = parse_whole_number(key)
    if pk is None:
        raise Http404("no such recipe")
    return get_object_or_404(RecipeVersion.objects.of(request.team), pk=pk)


def clean_form_inputs(data: QueryDict) -> dict[str, str]:
    """The inputs of the form; NUL, which no field may hold, becomes visible instead of an error of the database."""
    return {key: value.replace("\0", "\u2400") for key, value in data.items() if isinstance(value, str)}


def token_of(request: LabRequest) -> str:
    """What makes sending a form twice the same act; new for a form that is shown first."""
    return request.POST.get("token", "")[:TOKEN_LENGTH] or secrets.token_urlsafe(16)


def run_url(run: Run) -> str:
    return reverse("run", args=[run.pk])
