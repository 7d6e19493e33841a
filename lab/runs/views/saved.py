"""Recipes the team saved from the launch form: saving a version, its versions and what differs between two, deleting and the way back."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from lab.audit.recording import record
from lab.catalog.catalog import catalog
from lab.catalog.models import NAME_LENGTH, NOTE_LENGTH, RecipeVersion, SavedRecipe
from lab.runs import differences
from lab.runs.examination import examine
from lab.runs.forms import LaunchForm
from lab.runs.views.launching import draft_of, flat, show
from lab.runs.views.request import LabRequest


@require_POST
def save(request: LabRequest, recipe: str) -> HttpResponse:
    """What the form holds as the next version of a recipe; a form that could not be launched is not saved."""
    draft = draft_of(request, recipe, request.POST)
    filled = LaunchForm(request.team, catalog(), draft, flat(request.POST))
    name, note = (" ".join(filled.values.get(key, "").split()) for key in ("save.name", "save.note"))
    if not name or len(name) > NAME_LENGTH or len(note) > NOTE_LENGTH:
        filled.errors["save.name"] = (
            "Give it a name." if not name else f"At most {NAME_LENGTH} characters for the name and {NOTE_LENGTH} for the note."
        )
        return show(request, filled, status=422)
    found = examine(filled)
    if found.problems:
        filled.other_errors.append("The recipe was not saved: what it holds could not be launched.")
        return show(request, filled, found, status=422)
    titles = [title for title, _ in draft.stages]
    stages = [{"title": title, "spec": spec} for title, spec in zip(titles, differences.complete_specs(filled), strict=True)]
    with transaction.atomic():
        version = SavedRecipe.objects.save_version(request.team, request.user, name, note, draft.recipe, stages)
        record("recipe.save", version.recipe, version=version.number)
    messages.success(request, f"Saved as “{name}”, version {version.number}.")
    return redirect(f"{reverse('launch-recipe', args=[recipe])}?saved={version.pk}")


def recipe_of(request: LabRequest, key: int) -> SavedRecipe:
    return get_object_or_404(SavedRecipe.objects.of(request.team), pk=key)


def detail(request: LabRequest, key: int) -> HttpResponse:
    """Every version of a saved recipe, and what differs between two of them: the newest and the one before unless the URL says which."""
    recipe = recipe_of(request, key)
    versions = list(recipe.versions.select_related("created_by"))
    new = chosen(versions, request.GET.get("new", ""), versions[0])
    old = chosen(versions, request.GET.get("old", ""), next((version for version in versions if version.number < new.number), new))
    context = {
        "room": "launch",
        "recipe": recipe,
        "versions": versions,
        "old": old,
        "new": new,
        "changes": differences.between([stage["spec"] for stage in old.stages], [stage["spec"] for stage in new.stages]),
    }
    return TemplateResponse(request, "runs/saved.html", context)


def chosen(versions: list[RecipeVersion], number: str, otherwise: RecipeVersion) -> RecipeVersion:
    return next((version for version in versions if str(version.number) == number), otherwise)


@require_POST
def delete(request: LabRequest, key: int) -> HttpResponse:
    recipe = recipe_of(request, key)
    with transaction.atomic():
        recipe.delete_softly()
        record("recipe.delete", recipe)
    messages.success(request, f"“{recipe.name}” is deleted. It can be restored at the end of this page.")
    return redirect("launch")


@require_POST
def restore(request: LabRequest, key: int) -> HttpResponse:
    recipe = recipe_of(request, key)
    with transaction.atomic():
        recipe.restore()
        record("recipe.restore", recipe)
    messages.success(request, f"“{recipe.name}” is back.")
    return redirect("recipe-saved", key=recipe.pk)
