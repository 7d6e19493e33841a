"""One queue: how far it is, its people and items, and what a lead can do with it."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.db.models import Sum
from django.http import HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.accounts.roles import may
from lab.browse.address import Address
from lab.browse.filter_bar import chips
from lab.browse.selection import Selection
from lab.labels import listing, samples
from lab.labels.disagreement import with_reward
from lab.labels.forecast import forecast
from lab.labels.guidelines import render
from lab.labels.models import ItemState, Kind, Purpose, Queue, QueueStatus, Strategy
from lab.labels.pages.access import queue_of
from lab.labels.people import people_of, staff
from lab.labels.recipe import PAIRED, How, Recipe
from lab.runs.views.request import LabRequest

ITEMS = 25  # of a page
WIDTHS = (0.3, 0.2, 0.1, 0.05)
STATE_WORDS = {"open": "wants labels", "done": "done", "conflict": "conflict", "settled": "decided", "dropped": "dropped"}


@require_safe
def queue(request: LabRequest, queue_id: int) -> HttpResponse:
    """``?part=forecast`` and ``?part=items`` only those; annotators see progress and guidelines, leads everything."""
    found = queue_of(request, queue_id)
    leads = may(request, "label.lead")
    part = request.GET.get("part", "")
    if leads and part == "forecast":
        return TemplateResponse(request, "labels/queue.html#forecast", {"queue": found, **forecast_of(request, found)})
    if leads and part == "items":
        return TemplateResponse(request, "labels/queue.html#items", {"queue": found, **items_of(request, found)})
    [row] = listing.rows([found], request.user, may(request, "label.work"))
    context: dict[str, Any] = {
        "room": "label",
        "queue": found,
        "row": row,
        "leads": leads,
        "guidelines": render(found.guidelines),
        "is_test": found.purpose == Purpose.AB,
    }
    if leads:
        context |= {"people": people_of(found), **newcomers(found), **items_of(request, found), **origin(found)}
        context |= {"deletable": not found.judgements.exists(), "statuses": QueueStatus, "most_more": 10_000}
    return TemplateResponse(request, "labels/queue.html", context)


def newcomers(queue: Queue) -> dict[str, Any]:
    """Who of the team could be added."""
    here = set(queue.members.filter(labels=True).values_list("user_id", flat=True))
    barred = set(queue.members.filter(labels=False).values_list("user_id", flat=True))
    return {"newcomers": [one for one in staff(queue.team) if one.user_id not in here and (queue.assigned_only or one.user_id in barred)]}


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
    found = forecast(agreement, labels, width)
    left = queue.items.filter(state=ItemState.OPEN, room__gt=0).aggregate(left=Sum("room"))["left"] or 0
    return {
        "forecast": found,
        "width": width,
        "widths": WIDTHS,
        "left": left,
        "short": found.labels > left,
        "skewed": queue.strategy != Strategy.RANDOM,
        "many_a_label": queue.kind == Kind.RANKING,
    }


def width_of(query: QueryDict) -> float:
    try:
        return min(0.9, max(0.01, float(query.get("width", "")[:20])))
    except ValueError:
        return 0.1


def origin(queue: Queue) -> dict[str, Any]:
    """What the queue was made from, in words, and where that is."""
    selection = Selection.read(QueryDict(queue.selection))
    address = Address(selection)
    recipe = Recipe.stored(queue.selection, queue.kind, queue.strategy, queue.seed) if queue.selection else None
    return {
        "recipe": recipe,
        "how": How(recipe.how).label if recipe and queue.kind in PAIRED else "",
        "chips": chips(address),
        "source_runs": selection.runs,
        "browser": reverse("rollouts") + address.url() if queue.selection else "",
        "strategy": Strategy(queue.strategy).label,
        "reorderable": queue.strategy == Strategy.DISAGREEMENT and queue.kind in (*PAIRED, Kind.RANKING),
    }
