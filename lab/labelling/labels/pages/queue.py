"""One queue: how far it is, its people and items, and what a lead can do with it."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.db.models import Sum
from django.http import HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.labelling.labels import listing, samples
from lab.labelling.labels.disagreement import with_reward
from lab.labelling.labels.forecast import forecast_needed_votes
from lab.labelling.labels.guidelines import render_guidelines
from lab.labelling.labels.models import ItemState, Kind, Purpose, Queue, QueueStatus, Strategy
from lab.labelling.labels.pages.access import find_visible_queue
from lab.labelling.labels.people import list_labelling_members, people_of
from lab.labelling.labels.recipe import PAIRED, PairSource, Recipe
from lab.labelling.labels.repeated_gold import list_gold_sources
from lab.rollouts.browse.address import Address
from lab.rollouts.browse.filter_bar import build_filter_chips
from lab.rollouts.browse.selection import Selection
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission

ITEMS = 25  # of a page
WIDTHS = (0.3, 0.2, 0.1, 0.05)
STATE_WORDS = {"open": "needs labels", "done": "done", "conflict": "conflict", "settled": "decided", "dropped": "dropped"}


@require_safe
def show_queue(request: LabRequest, queue_id: int) -> HttpResponse:
    """``?part=forecast`` and ``?part=items`` only those; annotators see progress and guidelines, leads everything."""
    queue = find_visible_queue(request, queue_id)
    leads = has_team_permission(request, "label.lead")
    part = request.GET.get("part", "")
    if leads and part == "forecast":
        return TemplateResponse(request, "labels/queue.html#forecast", {"queue": queue, **forecast_of(request, queue)})
    if leads and part == "items":
        return TemplateResponse(request, "labels/queue.html#items", {"queue": queue, **items_of(request, queue)})
    [row] = listing.build_queue_rows([queue], request.user, has_team_permission(request, "label.work"))
    context: dict[str, Any] = {
        "room": "label",
        "queue": queue,
        "row": row,
        "leads": leads,
        "guidelines": render_guidelines(queue.guidelines),
        "is_test": queue.purpose == Purpose.AB,
    }
    if leads:
        context |= {"people": people_of(queue), **list_newcomers(queue), **items_of(request, queue), **describe_queue_origin(queue)}
        context["gold_sources"] = [source for source in list_gold_sources(queue.team) if source.kind == queue.kind]
        context |= {"deletable": not queue.judgements.exists(), "statuses": QueueStatus, "most_more": 10_000}
    return TemplateResponse(request, "labels/queue.html", context)


def list_newcomers(queue: Queue) -> dict[str, Any]:
    """Who of the team could be added."""
    assigned = set(queue.members.filter(labels=True).values_list("user_id", flat=True))
    barred = set(queue.members.filter(labels=False).values_list("user_id", flat=True))
    return {
        "newcomers": [
            member
            for member in list_labelling_members(queue.team)
            if member.user_id not in assigned and (queue.assigned_only or member.user_id in barred)
        ]
    }


def items_of(request: LabRequest, queue: Queue) -> dict[str, Any]:
    """A page of the items in the order they are served; ``?state=`` narrows them."""
    state = request.GET.get("state", "")
    items = queue.items.order_by("place", "pk")
    if state in ItemState.values:
        items = items.filter(state=state)
    elif state == "gold":
        items = items.filter(gold__isnull=False)
    else:
        state = ""
    page = Paginator(items, ITEMS).get_page(request.GET.get("page"))
    rows = samples.of_items(list(page))
    states = [("", "All"), *((value, STATE_WORDS[value].capitalize()) for value in ItemState.values), ("gold", "Gold")]
    return {"items": rows, "page": page, "state": state, "states": states, "state_words": STATE_WORDS}


def forecast_of(request: LabRequest, queue: Queue) -> dict[str, Any]:
    """How far votes agree with the reward, and how many more labels make its interval as narrow as ``?width=`` (0.01 to 0.9)."""
    width = width_of(request.GET)
    agreement, labels = with_reward(queue)
    forecast = forecast_needed_votes(agreement, labels, width)
    left = queue.items.filter(state=ItemState.OPEN, room__gt=0).aggregate(left=Sum("room"))["left"] or 0
    return {
        "forecast": forecast,
        "width": width,
        "widths": WIDTHS,
        "left": left,
        "short": forecast.labels > left,
        "skewed": queue.strategy != Strategy.RANDOM,
        "many_a_label": queue.kind == Kind.RANKING,
    }


def width_of(query: QueryDict) -> float:
    try:
        return min(0.9, max(0.01, float(query.get("width", "")[:20])))
    except ValueError:
        return 0.1


def describe_queue_origin(queue: Queue) -> dict[str, Any]:
    """What the queue was made from, in words, and where that is."""
    selection = Selection.read(QueryDict(queue.selection))
    address = Address(selection)
    recipe = Recipe.stored(queue.selection, queue.kind, queue.strategy, queue.seed) if queue.selection else None
    return {
        "recipe": recipe,
        "how": PairSource(recipe.how).label if recipe and queue.kind in PAIRED else "",
        "chips": build_filter_chips(address),
        "source_runs": selection.runs,
        "browser": reverse("rollouts") + address.url() if queue.selection else "",
        "strategy": Strategy(queue.strategy).label,
        "reorderable": queue.strategy == Strategy.DISAGREEMENT and queue.kind in (*PAIRED, Kind.RANKING),
    }
