"""Recipes the team saved from the launch form: saving a version, its versions and what differs between two, deleting and the way back."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry
from lab.training.catalog.catalog import load_catalog
from lab.training.catalog.models import NAME_LENGTH, NOTE_LENGTH, RecipeVersion, SavedRecipe
from lab.training.runs import form_changes
from lab.training.runs.form_checks import examine_launch_form
from lab.training.runs.forms import LaunchForm
from lab.training.runs.views.launch_form import clean_form_inputs, draft_of, render_launch_form


@require_POST
def save_recipe_version(request: LabRequest, recipe: str) -> HttpResponse:
    """What the form holds as the next version of a recipe; a form that could not be launched is not saved."""
    draft = draft_of(request, recipe, request.POST)
    filled = LaunchForm(request.team, load_catalog(), draft, clean_form_inputs(request.POST))
    name, note = (" ".join(filled.save.values[key].split()) for key in ("name", "note"))
    if not name or len(name) > NAME_LENGTH or len(note) > NOTE_LENGTH:
        limits = f"At most {NAME_LENGTH} characters for the name and {NOTE_LENGTH} for the note."
        filled.save.add_error("name", limits if name else "Give it a name.")
        return render_launch_form(request, filled, status=422)
    examination = examine_launch_form(filled)
    if examination.problems:
        filled.add_error(None, "The recipe was not saved: its settings cannot be launched.")
        return render_launch_form(request, filled, examination, status=422)
    titles = [title for title, _ in draft.stages]
    stages = [{"title": title, "spec": spec} for title, spec in zip(titles, form_changes.complete_specs(filled), strict=True)]
    with transaction.atomic():
        version, is_new = SavedRecipe.objects.save_version(request.team, request.user, name, note, draft.recipe, stages)
        if is_new:
            record_audit_entry("recipe.save", version.recipe, version=version.number)
    if is_new:
        messages.success(request, f"Saved as “{name}”, version {version.number}.")
    else:
        messages.info(request, f"No changes since “{name}”, version {version.number}.")
    return redirect(f"{reverse('launch-recipe', args=[recipe])}?saved={version.pk}")


def recipe_of(request: LabRequest, key: int) -> SavedRecipe:
    return get_object_or_404(SavedRecipe.objects.of(request.team), pk=key)


def show_saved_recipe(request: LabRequest, key: int) -> HttpResponse:
    """Every version of a saved recipe, and what differs between two of them: the newest and the one before unless the URL says which."""
    recipe = recipe_of(request, key)
    versions = list(recipe.versions.select_related("created_by"))
    new = choose_recipe_version(versions, request.GET.get("new", ""), versions[0])
    old = choose_recipe_version(versions, request.GET.get("old", ""), next((version for version in versions if version.number < new.number), new))
    context = {
        "room": "launch",
        "recipe": recipe,
        "versions": versions,
        "old": old,
        "new": new,
        "changes": form_changes.diff_recipe_versions([stage["spec"] for stage in old.stages], [stage["spec"] for stage in new.stages]),
    }
    return TemplateResponse(request, "runs/saved.html", context)


def choose_recipe_version(versions: list[RecipeVersion], number: str, otherwise: RecipeVersion) -> RecipeVersion:
    return next((version for version in versions if str(version.number) == number), otherwise)


@require_POST
def delete_saved_recipe(request: LabRequest, key: int) -> HttpResponse:
    recipe = recipe_of(request, key)
    with transaction.atomic():
        recipe.delete_softly()
        record_audit_entry("recipe.delete", recipe)
    messages.success(request, f"“{recipe.name}” is deleted. You can restore it at the bottom of this page.")
    return redirect("launch")


@require_POST
def restore_saved_recipe(request: LabRequest, key: int) -> HttpResponse:
    recipe = recipe_of(request, key)
    with transaction.atomic():
        recipe.restore()
        record_audit_entry("recipe.restore", recipe)
    messages.success(request, f"“{recipe.name}” was restored.")
    return redirect("recipe-saved", key=recipe.pk)
