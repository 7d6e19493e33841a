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

from lab.labels import claiming, judging, keymap
from lab.labels.answers import AnswerError, as_shown
from lab.labels.claim_view import claim_views, item_views
from lab.labels.listing import other_queues
from lab.labels.models import ItemState, Judgement, JudgementState, Queue, Verdict
from lab.labels.outcome import right
from lab.labels.pages import sent
from lab.labels.progress import progress
from lab.labels.settling import drop
from lab.labels.standing import Refused, may_label
from lab.runs.views.request import LabRequest

MAX_ID = 2**63 - 1
NOWHERE = "No other queue wants your labels now. What comes to this one appears here by itself."
View = Callable[[LabRequest, int], HttpResponse]
Verb = Callable[[LabRequest, Queue, dict[str, Any]], dict[str, Any]]


def verb(answer: Verb) -> View:
    """A POST with JSON to a queue of the team, answered in JSON, also when it cannot be done."""

    @require_POST
    @wraps(answer)
    def view(request: LabRequest, queue_id: int) -> HttpResponse:
        if queue_id > MAX_ID:
            raise Http404
        queue = get_object_or_404(Queue.objects.of(request.team), pk=queue_id)
        try:
            return reply(answer(request, queue, sent.body(request)))
        except Refused as refused:
            return reply({"message": refused.message, "fix": refused.fix}, 403)
        except AnswerError as error:
            return reply({"problems": [asdict(problem) for problem in error.problems]}, 422)
        except judging.Expired as expired:
            return reply({"error": "expired", **words(expired)}, 409)
        except judging.NothingToUndo as nothing:
            return reply({"error": "nothing-to-undo", "message": nothing.message, "fix": nothing.fix}, 409)
        except judging.Reviewed as reviewed:
            return reply({"error": "reviewed", "message": reviewed.message, "fix": reviewed.fix}, 409)

    return view


def reply(data: dict[str, Any], status: int = 200) -> JsonResponse:
    return JsonResponse(data, status=status, headers={"Cache-Control": "no-store"})


def words(expired: judging.Expired) -> dict[str, str]:
    """Why the lock is gone. Who has the item is said, what they answered is not."""
    if expired.item is None:
        message = "This item is no longer yours: it was submitted from another window, given back, or taken away."
        return {"message": message, "fix": "Go on with the next."}
    kept = "Your answer is kept: as your draft, should you get the item again, and in the item's history."
    if expired.item.state == ItemState.SETTLED:
        message = f"{expired.by or 'Somebody'} has decided this item meanwhile."
    elif expired.item.state == ItemState.DROPPED:
        message = "This item has left the queue meanwhile."
    else:
        message = f"Your lock on this item ran out, and {expired.by or 'somebody else'} has it now."
    return {"message": message, "fix": f"{kept} Go on with the next."}


def counts(queue: Queue, request: LabRequest) -> dict[str, int]:
    found = asdict(progress(queue, request.user))
    return {name: found[name] for name in ("done", "total", "conflicts", "mine")}


@verb
def next_claims(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    """Up to ``hold`` items the person holds now."""
    sent.only(data, "hold")
    hold = data.get("hold", 2)
    if isinstance(hold, bool) or not isinstance(hold, int) or not 1 <= hold <= claiming.MOST_HELD:
        raise sent.wrong("hold", f"This is a whole number from 1 to {claiming.MOST_HELD}.", "Reload the page.")
    views = shown(queue, request, hold)
    why = claiming.Why("", "") if views else claiming.why_nothing(queue, request.user)
    nowhere = why.fix == claiming.ELSEWHERE and not other_queues(queue, request.user).exists()
    return {"claims": views, "progress": counts(queue, request), "reason": why.reason, "fix": NOWHERE if nowhere else why.fix}


def shown(queue: Queue, request: LabRequest, hold: int) -> list[dict[str, Any]]:
    """Items whose answers were deleted with their run leave the queue, and others come in their place."""
    for _ in range(5):
        claims = claiming.claim(queue, request.user, hold)
        views = claim_views(queue, claims)
        if len(views) == len(claims):
            return views
        found = {view["item"] for view in views}
        for claim in claims:
            if claim.item_id not in found:
                drop(claim.item, None, "dropped", "An answer of this item was deleted.")
    return views


@verb
def submit(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.only(data, "token", "key", "seconds", "answer")
    token, key = sent.identifier(data, "token"), sent.identifier(data, "key")
    said = judging.submit(queue, request.user, token, key, sent.mapping(data, "answer"), data.get("seconds", 0))
    return {"judgement": said.pk, "progress": counts(queue, request), "gold": gold(said)}


def gold(said: Judgement) -> dict[str, Any] | None:
    """How the answer compares with what is known of the item."""
    item = said.item
    hit = right(item.gold, said)
    if item.gold is None or hit is None:
        return None
    if hit:
        return {"right": True, "message": "This item's answer was known, and yours agrees with it."}
    known = as_shown(Judgement(verdict=item.gold["verdict"], tiers=item.gold.get("tiers")), said.order)
    return {"right": False, "message": f"This item's answer was known: {KNOWN.get(known['choice'], 'another ranking')}."}


KNOWN = {"1": "the first is better", "2": "the second is better", "tie": "neither is better", "bad": "bad", "good": "good", "neutral": "neutral"}


@verb
def draft(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.only(data, "token", "draft")
    judging.save_draft(queue, request.user, sent.identifier(data, "token"), sent.mapping(data, "draft"))
    return {"saved": timezone.now().isoformat()}


@verb
def renew(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.only(data, "tokens")
    held = claiming.renew(queue, request.user, sent.identifiers(data, "tokens"))
    now = timezone.now()
    return {"held": {str(token): max(0, round((until - now).total_seconds())) for token, until in held.items()}}


@verb
def release(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.only(data, "tokens")
    return {"released": claiming.release(queue, request.user, sent.identifiers(data, "tokens"))}


@verb
def undo(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.only(data)
    claim = judging.undo(queue, request.user)
    views = claim_views(queue, [claim])
    if not views:
        drop(claim.item, None, "dropped", "An answer of this item was deleted.")
        raise judging.NothingToUndo("An answer of your last item was deleted; the item has left the queue.", "Go on with the next one.")
    return {"claim": views[0]}


@verb
def mine(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    """One's own label of an item, to be looked at again: a ClaimView without token, its answer as draft, and what the reviewer wrote."""
    sent.only(data, "item")
    said = own(request, queue, data, "item", "item")
    views = item_views(queue, [(said.item, said.order)])
    if said.item_id not in views:
        raise Http404
    comment = said.changes.filter(what="returned").order_by("-pk").values_list("comment", flat=True).first() or ""
    view = {"token": "", "item": said.item_id, "seconds_left": 0, "draft": as_shown(said, said.order), **views[said.item_id]}
    return {"claim": view, "judgement": said.pk, "state": said.state, "comment": comment}


@verb
def revise(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    sent.only(data, "judgement", "key", "seconds", "answer")
    key = sent.identifier(data, "key")
    said = own(request, queue, data, "judgement", "pk")
    revised = judging.revise(said, request.user, key, sent.mapping(data, "answer"), data.get("seconds", 0))
    return {"judgement": revised.pk, "progress": counts(queue, request), "gold": None}


@verb
def keys(request: LabRequest, queue: Queue, data: dict[str, Any]) -> dict[str, Any]:
    """The person's own keys for queues of this kind, all of them at once."""
    sent.only(data, "keys")
    return {"keys": keymap.keep(request.user, queue.kind, sent.mapping(data, "keys"))}


def own(request: LabRequest, queue: Queue, data: dict[str, Any], name: str, field: str) -> Judgement:
    may_label(queue, request.user)
    number = data.get(name)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_ID:
        raise sent.wrong(name, "This is not a number of ours.", "Reload the page.")
    rows = Judgement.objects.filter(queue=queue, user=request.user).exclude(state=JudgementState.WITHDRAWN).exclude(verdict=Verdict.SKIP)
    return get_object_or_404(rows.select_related("item", "queue"), **{field: number})
