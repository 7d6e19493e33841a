"""The adjudication view: one conflict after another, as the labellers saw it, with what they said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models.functions import Left
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.accounts.roles import may
from lab.labels.answers import CHOICES, AnswerError, Problem
from lab.labels.models import COUNTING, Item, ItemState, Judgement, Kind, Queue, Verdict
from lab.labels.settling import decide
from lab.labels.standing import Refused
from lab.quality.access import NO_REVIEWER, item_of, queue_context, queue_of, reviewers_only, reviews
from lab.quality.adjudicating import STATES, conflicts_of, following, newest_decision, undecide
from lab.quality.posted import NotReadable, body_of, comment_of, not_readable, problems_json, refused_json, wants_json
from lab.quality.showing import Said, order_for, said, shown, written
from lab.runs.views.request import LabRequest

LISTED = 50
ASKED = 80  # characters of a prompt in the list
REVEALED = "[decided with run, step, reward and labellers shown]"
KEYS = {"1": "1", "2": "2", "tie": "0", "bad": "b", "good": "1", "neutral": "3"}
WORDS = {"1": "1 is better", "2": "2 is better", "tie": "Tie", "bad": "Both bad", "good": "Good", "neutral": "Neutral"}
CLEARER = {"1": "Pair 1 is clearer", "2": "Pair 2 is clearer", "tie": "Tie"}


@dataclass(frozen=True)
class Vote:
    """What one labeller said. ``turned``: they saw the answers in another order, which their words may speak of."""

    number: int
    judgement: Judgement
    said: Said
    turned: bool


@dataclass(frozen=True)
class Choice:
    value: str
    words: str
    key: str


@require_safe
def conflicts(request: LabRequest, queue_id: int) -> HttpResponse:
    """``?state=`` conflict, settled or all; ``?item=`` which is shown; ``?reveal=1`` shows run, step, reward and labellers."""
    queue = queue_of(request, queue_id)
    reviewers_only(request, queue)
    return page(request, queue, request.GET.get("item", ""))


def page(
    request: LabRequest, queue: Queue, key: str, problems: list[Problem] | None = None, kept: dict[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    """``problems`` and ``kept`` (what was sent) after a decision that could not be taken."""
    user = request.user
    state = request.GET.get("state", "conflict")
    state = state if state in STATES else "conflict"
    items = conflicts_of(queue, user, state)
    everything = conflicts_of(queue, user, "all")
    number = int(key) if key.isascii() and key.isdigit() and len(key) <= 18 else 0
    item = everything.filter(pk=number).first() or items.filter(mine=False).first() or items.first()
    reveal = request.GET.get("reveal") == "1"
    pages = Paginator(items.annotate(asked=Left("prompt__text", ASKED)), LISTED)
    counts = {name: conflicts_of(queue, user, name).count() for name in ("conflict", "settled")}
    context: dict[str, Any] = {
        **queue_context(request, queue, "conflicts"),
        "state": state,
        "counts": counts,
        "total": sum(counts.values()),
        "page": pages.get_page(request.GET.get("page")),
        "item": item,
        "reveal": reveal,
        "problems": problems or [],
        "kept": kept or {},
        "query": {name: asked(state, reveal, name) for name in (*STATES, "")},
        "states": [("conflict", f"To decide ({counts['conflict']})"), ("settled", f"Decided ({counts['settled']})"), ("all", "All")],
        "last": newest_decision(queue, user),
    }
    if item is not None:
        context |= around(request, queue, item, state, reveal)
    return render(request, "quality/conflicts.html", context, status=status)


def around(request: LabRequest, queue: Queue, item: Item, state: str, reveal: bool) -> dict[str, Any]:
    """The item itself, and where the keys lead."""
    item.queue = queue
    order = order_for(item, request.user.pk or 0)
    items = conflicts_of(queue, request.user, state)
    before, after = following(items, item, back=True), following(items, item)
    words = CLEARER if queue.kind == Kind.CLEARER else WORDS
    choices = [
        Choice(value, words[value], "2" if value == "bad" and queue.kind == Kind.SINGLE else KEYS[value])
        for value in CHOICES[Kind(queue.kind)]
        if value in words
    ]
    if queue.kind == Kind.SINGLE:
        choices = [Choice(one.value, "Bad" if one.value == "bad" else one.words, one.key) for one in choices]
    return {
        "shown": shown(item, order, origins=reveal or not queue.blind),
        "order": json.dumps(order),
        "votes": votes(item, order),
        "choices": choices if queue.kind != Kind.RANKING else [],
        "final": written(item, item.final, order),
        "before": address(queue, state, reveal, before) if before else "",
        "after": address(queue, state, reveal, after) if after else "",
        "revealed_query": asked(state, not reveal, item=item),
    }


def votes(item: Item, order: list[int]) -> list[Vote]:
    rows = Judgement.objects.filter(item=item, state__in=COUNTING).exclude(verdict=Verdict.SKIP).select_related("user").order_by("pk")
    return [Vote(number, row, said(item, row, order), list(row.order) != order) for number, row in enumerate(rows, 1)]


def asked(state: str, reveal: bool, name: str | None = None, item: Item | None = None) -> str:
    values = {"state": state if name is None else name, "reveal": "1" if reveal else "", "item": item.pk if item else ""}
    return "?" + urlencode({key: value for key, value in values.items() if value and (key, value) != ("state", "conflict")})


def address(queue: Queue, state: str, reveal: bool, item: Item | None) -> str:
    return reverse("queue-conflicts", args=[queue.pk]) + asked(state, reveal, item=item)


@require_POST
def adjudicate(request: LabRequest, item_id: int) -> HttpResponse:
    """Decides an item, or takes the decision back (``act`` undo).

    A form: choice or tiers (JSON), order (JSON), comment, reveal; answers with the next conflict. JSON: {"answer", "order", "comment", "reveal"} in
    the places of ``order``; answers with the item's state and the address of the next.
    """
    item = item_of(request, item_id)
    try:
        data = body_of(request)
    except NotReadable:
        return not_readable()
    if wants_json(request) and not reviews(request, item.queue):
        return refused_json(NO_REVIEWER)
    reviewers_only(request, item.queue)
    try:
        if data.get("act") == "undo":
            undecide(item, request.user, may(request, "label.lead"))
            return done(request, item, item, "Taken back: this item is a conflict again.")
        answer, order = answer_of(data, wants_json(request))
        comment = comment_of(data)
        comment = f"{REVEALED} {comment}".strip() if data.get("reveal") in (True, "1") else comment
        decide(item, request.user, answer, order, comment)
    except AnswerError as error:
        if wants_json(request):
            return problems_json(error.problems)
        return page(request, item.queue, str(item.pk), error.problems, data, 422)
    except Refused as refused:
        if wants_json(request):
            return refused_json(refused)
        return page(request, item.queue, str(item.pk), [Problem("decision", refused.message, refused.fix)], data, 403)
    remaining = conflicts_of(item.queue, request.user)
    return done(request, item, following(remaining, item), "Decided.")


def answer_of(data: dict[str, Any], as_json: bool) -> tuple[dict[str, Any], list[int]]:
    """What is decided, and the order it speaks of. Raises AnswerError for fields that are no JSON or of another shape."""
    if as_json:
        answer, order = data.get("answer"), data.get("order")
    else:
        answer = {"choice": data.get("choice", "")}
        if data.get("tiers"):
            answer = {"choice": "ranked", "tiers": parsed(data["tiers"], "tiers")}
        order = parsed(data.get("order", ""), "order")
    if not isinstance(answer, dict):
        raise AnswerError([Problem("answer", "The answer is an object.", "Choose an answer.")])
    if not isinstance(order, list) or not all(isinstance(place, int) and not isinstance(place, bool) for place in order):
        raise AnswerError([Problem("order", "The order is a list of places.", "Reload the page; the comment is kept.")])
    return answer, order


def parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnswerError([Problem(name, "This cannot be read.", "Choose again.")]) from error


def done(request: LabRequest, item: Item, following: Item | None, words: str) -> HttpResponse:
    reveal = request.GET.get("reveal") == "1"
    url = address(item.queue, "conflict", reveal, following)
    if wants_json(request):
        item = Item.objects.get(pk=item.pk)
        return JsonResponse({"state": item.state, "final": item.final, "next": url if following else ""})
    messages.success(request, words if following or item.state != ItemState.CONFLICT else f"{words} No other conflict waits for you.")
    return redirect(url)
