"""The map of systems: every published system that the methods come from, with what is here of it and how to start from it."""

from __future__ import annotations

from django.http import HttpResponse
from django.urls import reverse

from lab.teams.accounts.requests import LabRequest
from lab.training.catalog import effects, system_map, system_words
from lab.training.catalog.catalog import Catalog, load_catalog
from lab.training.catalog.facets import read_facet_query
from lab.training.catalog.system_map import MappedSystem
from lab.training.catalog.systems import load_systems
from lab.training.runs.views.card_pages import render_card_page
from lab.training.runs.views.methods import list_method_additions


def list_systems(request: LabRequest) -> HttpResponse:
    """Every system that fits the URL; one URL, the whole page or only its results."""
    known, query = load_catalog(), read_facet_query(request.GET, system_map.FACETS)
    everything = system_map.build_system_map(load_systems().values(), known, effects.load_method_effects())
    matching = [one for one in everything if query.matches(one, system_map.FACETS)]
    idea = system_words.IDEAS.get(query.chosen.get("idea", ""), "")
    if idea:  # all of them stand under it, whatever else they are about
        matching.sort(key=lambda one: one.system.paper.casefold())
    shown = [(one, idea or one.idea_title, find_start_url(known, one)) for one in matching]
    return render_card_page(request, "systems", everything, system_map.FACETS, query, shown)


def find_start_url(known: Catalog, one: MappedSystem) -> str:
    """The launch form of a recipe with the system in it, or the page where it can be used; empty where there is none."""
    for method in one.methods:
        for _, url in list_method_additions(known, method):
            return url
    if one.recipe:
        return reverse("launch-recipe", args=[one.recipe])
    return ""
