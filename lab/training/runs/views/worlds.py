"""The worlds of the catalogue: all of them, and one with its tools, options, episodes and a box to play it."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.template.response import TemplateResponse

from lab.lib.refusals import Refusal
from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.training.catalog.catalog import load_catalog
from lab.training.catalog.world_curves import load_world_curve
from lab.training.runs import world_plays
from lab.training.runs.schema_form import build_schema_fields


def list_worlds(request: LabRequest) -> HttpResponse:
    worlds = [{**world, "curve": load_world_curve(world["name"])} for world in world_plays.list_worlds(load_catalog())]
    return render(request, "catalog/worlds.html", {"room": "methods", "worlds": worlds})


def show_world(request: LabRequest, world: str) -> HttpResponse:
    """The page of a world with an episode of it: another example, and further turns, are asked for with the same address."""
    catalog = load_catalog()
    entry = next((one for one in world_plays.list_worlds(catalog) if one["name"] == world), None)
    if entry is None:
        raise Http404("no such world")
    play = world_plays.WorldPlay.read(request.GET, entry)
    context = {
        "room": "methods",
        "world": entry,
        "play": play,
        "examples": range(1, world_plays.MOST_EXAMPLES + 1),
        "curve": load_world_curve(world),
        "options": build_schema_fields(entry["options"]),
    }
    try:
        context["episode"] = world_plays.play_turn(request.team.pk, world, play)
    except Refusal as refusal:
        context["refusal"] = refusal
    return TemplateResponse(request, "catalog/world.html" + ("#play" if wants_fragment(request) else ""), context)
