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

from lab.labelling.labels.answers import CHOICES, AnswerError
from lab.labelling.labels.labeller_standing import may_review
from lab.labelling.labels.models import COUNTING, Item, ItemState, Judgement, Kind, Queue, Verdict
from lab.labelling.labels.settlement import decide_queue_item
from lab.labelling.quality.access import find_quality_queue, item_of, queue_context
from lab.labelling.quality.adjudication import STATES, conflicts_of, find_next_conflict, newest_decision, undo_decision
from lab.labelling.quality.item_display import VerdictView, build_shown_item, describe_judgement, describe_stored_answer, order_for
from lab.labelling.quality.posted_forms import body_of, comment_of
from lab.lib.numbers import parse_whole_number
from lab.lib.refusal_answers import wants_json
from lab.lib.refusals import Problem, Refusal
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission

LISTED = 50
ASKED = 80  # characters of a prompt in the list
REVEALED = "[decided with run, step, reward and labellers shown]"
KEYS = {"1": "1", "2": "2", "tie": "0", "bad": "b", "good": "1", "neutral": "3"}
WORDS = {"1": "1 is better", "2": "2 is better", "tie": "Tie", "bad": "Both bad", "good": "Good", "neutral": "Neutral"}
CLEARER = {"1": "Pair 1 is clearer", "2": "Pair 2 is clearer", "tie": "Tie"}


@dataclass(frozen=True)
class ConflictVote:
    """What one labeller said. ``turned``: they saw the answers in another order, which their words may speak of."""

    number: int
    judgement: Judgement
    verdict: VerdictView
    turned: bool


@dataclass(frozen=True)
class VerdictChoice:
    value: str
    words: str
    key: str


@require_safe
def show_conflicts(request: LabRequest, queue_id: int) -> HttpResponse:
    """``?state=`` conflict, settled or all; ``?item=`` which is shown; ``?reveal=1`` shows run, step, reward and labellers."""
    queue = find_quality_queue(request, queue_id)
    may_review(queue, request.user)
    return render_conflicts_page(request, queue, request.GET.get("item", ""))


def render_conflicts_page(
    request: LabRequest, queue: Queue, key: str, problems: list[Problem] | None = None, kept: dict[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    """``problems`` and ``kept`` (what was sent) after a decision that could not be taken."""
    user = request.user
    state = request.GET.get("state", "conflict")
    state = state if state in STATES else "conflict"
    items = conflicts_of(queue, user, state)
    everything = conflicts_of(queue, user, "all")
    number = parse_whole_number(key) or 0
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
        "query": {name: build_conflicts_query(state, reveal, name) for name in (*STATES, "")},
        "states": [("conflict", f"To decide ({counts['conflict']})"), ("settled", f"Decided ({counts['settled']})"), ("all", "All")],
        "last": newest_decision(queue, user),
    }
    if item is not None:
        context |= build_conflict_context(request, queue, item, state, reveal)
    return render(request, "quality/conflicts.html", context, status=status)


def build_conflict_context(request: LabRequest, queue: Queue, item: Item, state: str, reveal: bool) -> dict[str, Any]:
    """The item itself, and where the keys lead."""
    item.queue = queue
    order = order_for(item, request.user.pk or 0)
    items = conflicts_of(queue, request.user, state)
    before, after = find_next_conflict(items, item, back=True), find_next_conflict(items, item)
    words = CLEARER if queue.kind == Kind.CLEARER else WORDS
    choices = [
        VerdictChoice(value, words[value], "2" if value == "bad" and queue.kind == Kind.SINGLE else KEYS[value])
        for value in CHOICES[Kind(queue.kind)]
        if value in words
    ]
    if queue.kind == Kind.SINGLE:
        choices = [VerdictChoice(choice.value, "Bad" if choice.value == "bad" else choice.words, choice.key) for choice in choices]
    return {
        "item_view": build_shown_item(item, order, origins=reveal or not queue.blind),
        "order": json.dumps(order),
        "votes": list_item_votes(item, order),
        "choices": choices if queue.kind != Kind.RANKING else [],
        "final": describe_stored_answer(item, item.final, order),
        "before": build_conflict_url(queue, state, reveal, before) if before else "",
        "after": build_conflict_url(queue, state, reveal, after) if after else "",
        "revealed_query": build_conflicts_query(state, not reveal, item=item),
    }


def list_item_votes(item: Item, order: list[int]) -> list[ConflictVote]:
    rows = Judgement.objects.filter(item=item, state__in=COUNTING).exclude(verdict=Verdict.SKIP).select_related("user").order_by("pk")
    return [ConflictVote(number, row, describe_judgement(item, row, order), list(row.order) != order) for number, row in enumerate(rows, 1)]


def build_conflicts_query(state: str, reveal: bool, name: str | None = None, item: Item | None = None) -> str:
    values = {"state": state if name is None else name, "reveal": "1" if reveal else "", "item": item.pk if item else ""}
    return "?" + urlencode({key: value for key, value in values.items() if value and (key, value) != ("state", "conflict")})


def build_conflict_url(queue: Queue, state: str, reveal: bool, item: Item | None) -> str:
    return reverse("queue-conflicts", args=[queue.pk]) + build_conflicts_query(state, reveal, item=item)


@require_POST
def adjudicate_item(request: LabRequest, item_id: int) -> HttpResponse:
    """Decides an item, or takes the decision back (``act`` undo).

    A form: choice or tiers (JSON), order (JSON), comment, reveal; answers with the next conflict. JSON: {"answer", "order", "comment", "reveal"} in
    the places of ``order``; answers with the item's state and the address of the next.
    """
    item = item_of(request, item_id)
    data = body_of(request)
    may_review(item.queue, request.user)
    try:
        if data.get("act") == "undo":
            undo_decision(item, request.user, has_team_permission(request, "label.lead"))
            return build_decision_response(request, item, item, "Undone: this item is a conflict again.")
        answer, order = read_decided_answer(data, wants_json(request))
        comment = comment_of(data)
        comment = f"{REVEALED} {comment}".strip() if data.get("reveal") in (True, "1") else comment
        decide_queue_item(item, request.user, answer, order, comment)
    except AnswerError as error:
        if wants_json(request):
            raise
        return render_conflicts_page(request, item.queue, str(item.pk), error.problems, data, 422)
    except Refusal as refused:
        if wants_json(request):
            raise
        return render_conflicts_page(request, item.queue, str(item.pk), [Problem("decision", refused.message, refused.fix)], data, 403)
    remaining = conflicts_of(item.queue, request.user)
    return build_decision_response(request, item, find_next_conflict(remaining, item), "Decided.")


def read_decided_answer(data: dict[str, Any], as_json: bool) -> tuple[dict[str, Any], list[int]]:
    """What is decided, and the order it speaks of. Raises AnswerError for fields that are no JSON or of another shape."""
    if as_json:
        answer, order = data.get("answer"), data.get("order")
    else:
        answer = {"choice": data.get("choice", "")}
        if data.get("tiers"):
            answer = {"choice": "ranked", "tiers": parse_json_field(data["tiers"], "tiers")}
        order = parse_json_field(data.get("order", ""), "order")
    if not isinstance(answer, dict):
        raise AnswerError([Problem("answer", "The answer must be an object.", "Choose an answer.")])
    if not isinstance(order, list) or not all(isinstance(index, int) and not isinstance(index, bool) for index in order):
        raise AnswerError([Problem("order", "The order must be a list of places.", "Reload the page; the comment is kept.")])
    return answer, order


def parse_json_field(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnswerError([Problem(name, "This cannot be read.", "Choose again.")]) from error


def build_decision_response(request: LabRequest, item: Item, following: Item | None, words: str) -> HttpResponse:
    reveal = request.GET.get("reveal") == "1"
    url = build_conflict_url(item.queue, "conflict", reveal, following)
    if wants_json(request):
        item = Item.objects.same_row(item).get()
        return JsonResponse({"state": item.state, "final": item.final, "next": url if following else ""})
    messages.success(request, words if following or item.state != ItemState.CONFLICT else f"{words} No other conflicts are left for you.")
    return redirect(url)
