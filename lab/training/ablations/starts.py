"""What a grid or a sweep starts from: a run of the team, a recipe, or a spec that a page carries."""

from __future__ import annotations

from typing import Any

from django.http import Http404, QueryDict

from lab.teams.accounts.models import Team
from lab.training.ablations.plan import find_source_run, given_spec
from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.runs import drafts
from lab.training.runs.models import Run
from lab.training.runs.references import restore_reference_names

Spec = dict[str, Any]
OFFERED_RUNS = 10  # newest runs of the team


def list_start_choices(team: Team) -> dict[str, Any]:
    """Runs and recipes of one stage, for the page that asks what to start from."""
    runs = Run.objects.of(team).listed().filter(outside=False).defer("spec", "notes").order_by("-number")[:OFFERED_RUNS]
    return {"runs": runs, "recipes": [recipe for recipe in load_catalog().recipes if len(recipe["stages"]) == 1]}


def read_start(team: Team, data: QueryDict) -> tuple[Spec | None, Run | None]:
    """The spec that is varied and the run it is of; nothing where the address names neither. Raises Http404."""
    if source := find_source_run(team, data.get("from_run", "")):
        return restore_reference_names(team, source.spec), source
    if recipe := data.get("recipe", ""):
        return recipe_spec(recipe), None
    if "spec" not in data:
        return None, None
    spec = given_spec(data.get("spec", ""))
    if spec is None:
        raise Http404("this is no spec")
    return spec, None


def recipe_spec(name: str) -> Spec:
    """Of a recipe of one stage. Raises Http404."""
    try:
        draft = drafts.of_recipe(load_catalog(), name)
    except CatalogError as error:
        raise Http404(str(error)) from None
    if draft.is_chain:
        raise Http404("a multi-stage recipe cannot be varied")
    return draft.stages[0][1]
