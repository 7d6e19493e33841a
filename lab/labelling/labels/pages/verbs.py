"""What the labelling page asks of the server, in JSON.

Errors: 403 {"message", "fix"}; 404; 409 {"error": "expired" | "nothing-to-undo" | "reviewed", "message", "fix"}; 422 {"problems": [{"field",
"message", "fix"}]}. Nothing of a gold item's answer leaves before the person has given theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any

from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.http import require_POST

from lab.labelling.labels import item_claims, judgements, keymap
from lab.labelling.labels.answers import as_shown
from lab.labelling.labels.claim_view import claim_views, item_views
from lab.labelling.labels.labeller_standing import may_label
from lab.labelling.labels.listing import other_queues
from lab.labelling.labels.models import Judgement, JudgementState, Queue, Verdict
from lab.labelling.labels.outcome import is_gold_match
from lab.labelling.labels.pages import sent
from lab.labelling.labels.progress import count_queue_progress
from lab.labelling.labels.settlement import drop_item
from lab.lib.numbers import MAX_ID
from lab.lib.refusal_answers import build_json_refusal
from lab.lib.refusals import Refusal
from lab.teams.accounts.requests import LabRequest

NOWHERE = "No other queue needs your labels. New items of this queue appear here automatically."
View = Callable[[LabRequest, int], HttpResponse]
Verb = Callable[[LabRequest, Queue, dict[str, Any]], dict[str, Any]]


def make_json_queue_view(answer: Verb) -> View:
    """A POST with JSON to a queue of the team, answered in JSON, also when it cannot be done."""

    @require_POST
    @wraps(answer)
    def view(request: LabRequest, queue_id: int) -> HttpResponse:
        queue = get_object_or_404(Queue.objects.of(request.team), pk=queue_id)
        queue.team = request.team
        try:
            return build_json_reply(answer(request, queue, sent.parse_json_body(request)))
        except Refusal as refusal:
            return build_json_refusal(refusal)

    return view


def build_json_reply(data: dict[str, Any], status: int = 200) -> JsonResponse:
    return JsonResponse(data, status=status, headers={"Cache-Control": "no-store"})


def build_progress_counts(queue: Queue, request: LabRequest) -> dict[str, int]:
    counts = asdict(count_queue_progress(queue, request.user))
    return {name: counts[name] for name in ("done", "total", "conflicts", "mine")}


@make_json_queue_view
def next_claims(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    """Up to ``hold`` items the person holds now."""
    sent.require_only_fields(data, "hold")
    hold = data.get("hold", 2)
    if isinstance(hold, bool) or not isinstance(hold, int) or not 1 <= hold <= item_claims.MOST_HELD:
        raise sent.make_answer_error("hold", f"This is a whole number from 1 to {item_claims.MOST_HELD}.", "Reload the page.")
    views = claim_visible_items(queue, request, hold)
    why = item_claims.NoWorkReason("", "") if views else item_claims.why_nothing(queue, request.user)
    nowhere = why.fix == item_claims.ELSEWHERE and not other_queues(queue, request.user).exists()
    return {"claims": views, "progress": build_progress_counts(queue, request), "reason": why.reason, "fix": NOWHERE if nowhere else why.fix}


def claim_visible_items(queue: Queue, request: LabRequest, hold: int) -> list[dict[str, Any]]:
    """Items whose answers were deleted with their run leave the queue, and others come in their place."""
    for _ in range(5):
        claims = item_claims.claim_items(queue, request.user, hold)
        views = claim_views(queue, claims, claims[0].read_at if claims else None)
        if len(views) == len(claims):
            return views
        visible = {view["item"] for view in views}
        for claim in claims:
            if claim.item_id not in visible:
                drop_item(claim.item, None, "dropped", "An answer of this item was deleted.")
    return views


@make_json_queue_view
def submit_label(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.require_only_fields(data, "token", "key", "seconds", "answer")
    token, key = sent.parse_uuid_field(data, "token"), sent.parse_uuid_field(data, "key")
    judgement = judgements.submit_judgement(queue, request.user, token, key, sent.parse_mapping_field(data, "answer"), data.get("seconds", 0))
    return {"judgement": judgement.pk, "progress": build_progress_counts(queue, request), "gold": compare_with_gold(judgement)}


def compare_with_gold(judgement: Judgement) -> dict[str, Any] | None:
    """How the answer compares with what is known of the item."""
    item = judgement.item
    hit = is_gold_match(item.gold, judgement)
    if item.gold is None or hit is None:
        return None
    if hit:
        return {"right": True, "message": "This was a gold item, and your answer is correct."}
    known = as_shown(Judgement(verdict=item.gold["verdict"], tiers=item.gold.get("tiers")), judgement.order)
    return {"right": False, "message": f"This was a gold item. The correct answer: {KNOWN.get(known['choice'], 'another ranking')}."}


KNOWN = {"1": "the first is better", "2": "the second is better", "tie": "neither is better", "bad": "bad", "good": "good", "neutral": "neutral"}


@make_json_queue_view
def save_label_draft(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.require_only_fields(data, "token", "draft")
    judgements.save_draft(queue, request.user, sent.parse_uuid_field(data, "token"), sent.parse_mapping_field(data, "draft"))
    return {"saved": timezone.now().isoformat()}


@make_json_queue_view
def renew_label_claims(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.require_only_fields(data, "tokens")
    held = item_claims.renew_claims(queue, request.user, sent.parse_uuid_list(data, "tokens"))
    now = timezone.now()
    return {"held": {str(token): max(0, round((until - now).total_seconds())) for token, until in held.items()}}


@make_json_queue_view
def release_label_claims(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.require_only_fields(data, "tokens")
    return {"released": item_claims.release_claims(queue, request.user, sent.parse_uuid_list(data, "tokens"))}


@make_json_queue_view
def undo_label(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.require_only_fields(data)
    claim = judgements.undo_last_judgement(queue, request.user)
    views = claim_views(queue, [claim])
    if not views:
        drop_item(claim.item, None, "dropped", "An answer of this item was deleted.")
        raise Refusal("An answer of your last item was deleted; the item has left the queue.", "Go on with the next one.", code="nothing-to-undo")
    return {"claim": views[0]}


@make_json_queue_view
def show_own_label(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    """One's own label of an item, to be looked at again: a ClaimView without token, its answer as draft, and what the reviewer wrote."""
    sent.require_only_fields(data, "item")
    judgement = find_own_judgement(request, queue, data, "item", "item")
    views = item_views(queue, [(judgement.item, judgement.order)])
    if judgement.item_id not in views:
        raise Http404
    comment = judgement.changes.filter(what="returned").order_by("-pk").values_list("comment", flat=True).first() or ""
    view = {"token": "", "item": judgement.item_id, "seconds_left": 0, "draft": as_shown(judgement, judgement.order), **views[judgement.item_id]}
    return {"claim": view, "judgement": judgement.pk, "state": judgement.state, "comment": comment}


@make_json_queue_view
def revise_label(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.require_only_fields(data, "judgement", "key", "seconds", "answer")
    key = sent.parse_uuid_field(data, "key")
    judgement = find_own_judgement(request, queue, data, "judgement", "pk")
    revised = judgements.revise_judgement(judgement, request.user, key, sent.parse_mapping_field(data, "answer"), data.get("seconds", 0))
    return {"judgement": revised.pk, "progress": build_progress_counts(queue, request), "gold": None}


@make_json_queue_view
def save_label_keys(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    """The person's own keys for queues of this kind, all of them at once."""
    sent.require_only_fields(data, "keys")
    return {"keys": keymap.save_key_map(request.user, queue.kind, sent.parse_mapping_field(data, "keys"))}


def find_own_judgement(request: LabRequest, queue: Queue, data: dict[str, Any], name: str, field: str) -> Judgement:
    may_label(queue, request.user)
    number = data.get(name)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_ID:
        raise sent.make_answer_error(name, "This is not a number of ours.", "Reload the page.")
    rows = Judgement.objects.filter(queue=queue, user=request.user).exclude(state=JudgementState.WITHDRAWN).exclude(verdict=Verdict.SKIP)
    return get_object_or_404(rows.select_related("item", "queue"), **{field: number})
