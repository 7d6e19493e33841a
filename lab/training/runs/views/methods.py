"""The methods of the catalogue: all of them with search and facets, and one with its formulas, its parameters and the team's runs that used it."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from lab.teams.accounts.requests import LabRequest
from lab.training.catalog import effects, methods
from lab.training.catalog.catalog import Catalog, CatalogError, load_catalog
from lab.training.catalog.facets import read_facet_query
from lab.training.catalog.systems import load_systems
from lab.training.runs import method_usage
from lab.training.runs.drafts import WORLD
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.views.card_pages import render_card_page
from trainers.contract.stacking import DEFAULT_BASES

SHOWN_RUNS = 10
RECIPES = {
    "grpo": "grpo",
    "rloo": "rloo",
    "dpo": "dpo",
    "sft": "cold-start",
    "kto": "kto",
    "orpo": "orpo",
    "cpo": "simpo",
    "online-dpo": "online-dpo",
    "gkd": "gkd",
    "reward": "reward",
    "procedure": "procedure",
}  # what a method of each trainer is added to


def list_methods(request: LabRequest) -> HttpResponse:
    """Every method that fits the URL; one URL, the whole page or only its results."""
    known, query = load_catalog(), read_facet_query(request.GET, methods.FACETS)
    everything = methods.all_methods(known.methods)
    used, measured = method_usage.count_method_runs(request.team), effects.load_method_effects()
    shown = [(method, used[method.name], measured.get(method.name)) for method in everything if query.matches(method, methods.FACETS)]
    return render_card_page(request, "methods", everything, methods.FACETS, query, shown)


def show_method(request: LabRequest, name: str) -> HttpResponse:
    known = load_catalog()
    try:
        method = methods.Method(known.method(name))
    except CatalogError:
        raise Http404("no such method") from None
    context = {
        "room": "methods",
        "method": method,
        "known": known.methods_by_name,
        "system": load_systems().get(method.name),
        "parameters": build_schema_fields(method.data["parameters"]),
        "is_default": method.name in DEFAULT_BASES.values(),
        "effect": effects.effect_of(method.name),
        "runs": method_usage.list_latest_method_runs(request.team, method.name, SHOWN_RUNS),
        "run_count": method_usage.count_method_runs(request.team)[method.name],
        "adds": list_method_additions(known, method),
    }
    return TemplateResponse(request, "catalog/method.html", context)


def list_method_additions(known: Catalog, method: methods.Method) -> list[tuple[str, str]]:
    """(recipe's title, URL of its launch form with the method in it, at its method section) for each trainer the method works on."""
    recipes = {recipe["name"]: recipe["title"] for recipe in known.recipes}
    additions = []
    for trainer in method.trainers:
        recipe = WORLD if method.worlds and trainer == "grpo" else RECIPES.get(trainer, "")
        if recipe in recipes:
            query = urlencode({**({"world": method.worlds[0]} if method.worlds else {}), "add": method.name})
            additions.append((recipes[recipe], f"{reverse('launch-recipe', args=[recipe])}?{query}#composer-0"))
    return additions
