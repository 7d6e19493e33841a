"""Conflicts of a queue: which items people differ on, what they said, deciding one and taking a decision back, by the rules of the page."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any, Literal

from django.db.models import Q
from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.item_questions import AskedOut, asked_of
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import ApiProblem, FieldProblem, make_validation_problem
from lab.labelling.labels.answers import AnswerError
from lab.labelling.labels.labeller_standing import may_review
from lab.labelling.labels.models import Item, Queue
from lab.labelling.labels.settlement import decide_queue_item
from lab.labelling.quality.access import find_quality_queue, item_of, others_visible
from lab.labelling.quality.adjudication import conflicts_of, undo_decision, with_mine
from lab.labelling.quality.conflicts import REVEALED, ConflictVote, list_item_votes
from lab.labelling.quality.item_display import VerdictView, describe_stored_answer, order_for
from lab.labelling.quality.posted_forms import COMMENT
from lab.lib.refusals import Refusal

router = make_router("Review and conflicts")
WHY = "a decision needs a responsible person"
REVEAL = Query(False, description="Show run, step, reward and labellers in a blind queue. State this when you decide.")


class Verdict(Schema):
    """Choices and tiers refer to the order of `answers`."""

    words: str = Field(examples=["1 is clearly better"])
    choice: str = Field(description="1, 2, tie or bad; for single answers good, bad or neutral; for rankings ranked.")
    tiers: list[list[int]] = Field(description="For rankings: positions, best first.")
    strength: int | None


class VoteOut(Verdict):
    number: int
    by: Person | None = Field(description="null in a blind queue, unless revealed.")
    rubric: dict[str, Any]
    rationale: str
    correction: str
    turned: bool = Field(description="They saw the answers in a different order, which their texts may refer to.")


class DecisionOut(Verdict):
    by: Person | None
    at: datetime | None
    comment: str


class ConflictOut(AskedOut):
    item: int
    queue: int
    state: str = Field(description="open, done, conflict, settled or dropped.")
    mine: bool = Field(description="You labelled it, so someone else has to decide.")
    order: list[int] = Field(description="Positions of the item in the order of `answers`: drawn for you, always the same.")
    votes: list[VoteOut]
    decision: DecisionOut | None


class DecideIn(RequestBody):
    answer: dict[str, Any] = Field(
        description="`choice` 1, 2, tie or bad for pairs; good, bad or neutral for single answers; ranked with `tiers` for rankings. "
        "Also: strength, rubric, rationale.",
        examples=[{"choice": "1"}],
    )
    order: list[int] | None = Field(None, max_length=200, description="The order that the answer refers to; default: that of `answers`.")
    comment: str = Field("", max_length=COMMENT, description="Stored with the decision.")
    reveal: bool = Field(False, description="You knew where the answers came from; the comment will state this.")


def build_reviewer_request(request: HttpRequest) -> Any:
    """Who reviews, as the pages of quality ask for them."""
    caller = caller_of(request)
    return SimpleNamespace(user=caller.person(WHY), team=caller.team, membership=request.membership)  # type: ignore[attr-defined]


def reviewed_queue(request: HttpRequest, queue_id: int) -> tuple[Any, Queue]:
    """Raises Http404, and Refusal for who does not review in it."""
    asker = build_reviewer_request(request)
    queue = find_quality_queue(asker, queue_id)
    may_review(queue, asker.user)
    return asker, queue


def reviewed_item(request: HttpRequest, item_id: int) -> tuple[Any, Item]:
    asker = build_reviewer_request(request)
    item = item_of(asker, item_id)
    may_review(item.queue, asker.user)
    return asker, item


def in_the_way(error: Refusal) -> ApiProblem:
    """Who may review here was asked before: what is refused now is refused as things stand."""
    return ApiProblem("conflict", str(error))


def serialize_conflicts(queue: Queue, items: list[Any], user: Any, reveal: bool) -> list[dict[str, Any]]:
    """``items`` of ``conflicts_of``."""
    named = reveal or not queue.blind
    pairs = []
    for item in items:
        item.queue = queue
        pairs.append((item, order_for(item, user.pk)))
    questions = asked_of(queue, pairs, named)
    return [
        {
            "item": item.pk,
            "queue": queue.pk,
            "state": item.state,
            "mine": item.mine,
            "order": order,
            "votes": [serialize_vote(vote, named) for vote in list_item_votes(item, order)],
            "decision": serialize_decision(item, order),
            **questions[item.pk],
        }
        for item, order in pairs
    ]


def select_following_items(rows: Any, last: Item) -> Any:
    """What follows an item in the order they were served; decided or not, it keeps its place."""
    return rows.filter(Q(place__gt=last.place) | Q(place=last.place, pk__gt=last.pk))


def serialize_vote(vote: ConflictVote, named: bool) -> dict[str, Any]:
    row = vote.judgement
    texts = {"rubric": row.rubric, "rationale": row.rationale, "correction": row.correction}
    return {
        **serialize_verdict(vote.verdict),
        **texts,
        "number": vote.number,
        "by": serialize_person(row.user) if named else None,
        "turned": vote.turned,
    }


def serialize_verdict(verdict: VerdictView) -> dict[str, Any]:
    return {"words": verdict.words, "choice": verdict.choice, "tiers": verdict.tiers, "strength": verdict.strength}


def serialize_decision(item: Item, order: list[int]) -> dict[str, Any] | None:
    answer = describe_stored_answer(item, item.final, order)
    if answer is None:
        return None
    by = serialize_person(item.final_by) if item.final_by else None
    return {**serialize_verdict(answer), "by": by, "at": item.final_at, "comment": item.final_comment}


def serialize_conflict(item: Item, user: Any, reveal: bool) -> dict[str, Any]:
    """As it is now."""
    row = with_mine(Item.objects.select_related("final_by").same_row(item), user).get()
    return serialize_conflicts(item.queue, [row], user, reveal)[0]


@router.get("/queues/{int:queue_id}/conflicts", auth=require_permission("label.work"), response=Page[ConflictOut], summary="Conflicts of a queue")
def list_conflicts(
    request: HttpRequest,
    queue_id: int,
    after: After,
    limit: Limit,
    state: Literal["conflict", "settled", "all"] = Query("conflict", description="Undecided, decided, or both."),
    reveal: bool = REVEAL,
) -> object:
    """Items on which labellers disagree, in serving order, with each label. For people who lead queues, and the queue's reviewers."""
    asker, queue = reviewed_queue(request, queue_id)
    rows = conflicts_of(queue, asker.user, state).select_related("final_by")
    if after:
        rows = select_following_items(rows, one_of(queue.items, parse_after_id(after)))
    items = list(rows[: limit + 1])
    views = {view["item"]: view for view in serialize_conflicts(queue, items[:limit], asker.user, reveal)}
    return paginate_rows(items, limit, lambda row: row.pk, lambda row: views[row.pk])


@router.get("/items/{int:item_id}", auth=require_permission("label.work"), response=ConflictOut, summary="One item of a queue")
def get_item(request: HttpRequest, item_id: int, reveal: bool = REVEAL) -> object:
    """With its labels and decision, whatever its state. For people who lead queues, and the queue's reviewers unless they can still be asked
    to label the item."""
    asker, item = reviewed_item(request, item_id)
    if not others_visible(asker, item):
        raise ApiProblem("permission", "You can still be asked to label this item: labels of others are shown once nobody labels it any more.")
    return serialize_conflict(item, asker.user, reveal)


@router.post("/items/{int:item_id}/decision", auth=require_permission("label.work"), response=ConflictOut, summary="Decide an item")
def decide_item(request: HttpRequest, item_id: int, given: DecideIn) -> object:
    """Settles the item with an answer, or replaces the decision. Nobody decides items that they labelled themselves."""
    asker, item = reviewed_item(request, item_id)
    comment = f"{REVEALED} {given.comment}".strip() if given.reveal else given.comment.strip()
    try:
        decide_queue_item(item, asker.user, given.answer, given.order or order_for(item, asker.user.pk), comment)
    except AnswerError as error:
        raise make_validation_problem(
            FieldProblem(field=problem.field if problem.field == "order" else f"answer.{problem.field}", message=problem.message, fix=problem.fix)
            for problem in error.problems
        ) from None
    except Refusal as error:
        raise in_the_way(error) from None
    return serialize_conflict(item, asker.user, given.reveal)


@router.delete("/items/{int:item_id}/decision", auth=require_permission("label.work"), response=ConflictOut, summary="Undo a decision")
def undecide_item(request: HttpRequest, item_id: int) -> object:
    """The item returns to the state that follows from its labels. You can undo your own decisions; people who lead queues can undo anyone's."""
    asker, item = reviewed_item(request, item_id)
    try:
        undo_decision(item, asker.user, caller_of(request).may("label.lead"))
    except Refusal as error:
        raise in_the_way(error) from None
    return serialize_conflict(item, asker.user, False)
