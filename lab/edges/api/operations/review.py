"""Review: labels are accepted or sent back with a comment, one by one or all that nobody contradicts. Nobody reviews their own."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import Query, RequestBody, make_router, require_permission
from lab.edges.api.item_questions import AskedOut, asked_of
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.adjudication import build_reviewer_request, in_the_way, reviewed_queue
from lab.edges.api.operations.queues import LabelOut, serialize_label
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import FieldProblem, make_invalid_problem, make_validation_problem
from lab.labelling.labels.answers import AnswerError
from lab.labelling.labels.labeller_standing import may_review
from lab.labelling.labels.models import Judgement, JudgementState
from lab.labelling.labels.outcome import is_gold_match
from lab.labelling.quality.access import judgement_of
from lab.labelling.quality.models import Review
from lab.labelling.quality.posted_forms import COMMENT
from lab.labelling.quality.review import ReviewQuery, accept_uncontradicted, judgements_of, record_review
from lab.lib.numbers import MAX_ID
from lab.lib.refusals import Refusal
from lab.teams.accounts.roles import has_team_permission

router = make_router("Review and conflicts")


class ReviewOut(Schema):
    by: Person | None
    accepted: bool
    comment: str
    at: datetime


class ToReview(LabelOut):
    asked: AskedOut = Field(description="Its item, with the answers in the item's own order.")
    gold: bool | None = Field(description="For gold items: whether the label is right.")
    reviews: list[ReviewOut]


class ReviewIn(RequestBody):
    act: Literal["accept", "return"]
    comment: str = Field("", max_length=COMMENT, description="Required to return a label.", examples=["Look at the last step again."])


class Reviewed(Schema):
    id: int
    state: str = Field(description="accepted or returned.")
    item: int
    reviews: list[ReviewOut]


class AcceptIn(RequestBody):
    by: int = Field(ge=1, le=MAX_ID, description="Id of the labeller.", examples=[3])


class Accepted(Schema):
    accepted: int
    left: int = Field(description="Labels left to accept; send the request again while there are some.")


def serialize_review(review: Review) -> dict[str, Any]:
    by = serialize_person(review.reviewer) if review.reviewer else None
    return {"by": by, "accepted": review.accepted, "comment": review.comment, "at": review.created_at}


@router.get("/queues/{int:queue_id}/review", auth=require_permission("label.work"), response=Page[ToReview], summary="Labels to review")
def list_to_review(
    request: HttpRequest,
    queue_id: int,
    after: After,
    limit: Limit,
    state: Literal["submitted", "accepted", "returned", "skipped"] = Query(
        "submitted", description="Labels waiting for review, reviewed labels, or skips."
    ),
    by: int | None = Query(None, ge=1, le=MAX_ID, description="Only labels of this person."),
) -> object:
    """Labels of others, oldest first. For people who lead queues, and the queue's reviewers."""
    asker, queue = reviewed_queue(request, queue_id)
    rows = judgements_of(asker, queue, ReviewQuery({"state": state, "by": by or ""})).filter(pk__gt=parse_after_id(after) if after else 0)
    judgements = list(rows.select_related("user", "item").prefetch_related("preferences", "reviews__reviewer")[: limit + 1])
    for judgement in judgements:
        judgement.item.queue = queue
    questions = asked_of(queue, [(judgement.item, list(range(len(judgement.order)))) for judgement in judgements[:limit]], origins=not queue.blind)
    blinded = queue.blind and not has_team_permission(asker, "label.lead")
    hidden: dict[str, Any] = {"rollouts": [], "preferences": []} if blinded else {}  # ids tell which answer is the later one

    def serialize_judgement(judgement: Judgement) -> dict[str, Any]:
        told = {
            "asked": questions[judgement.item_id],
            "gold": is_gold_match(judgement.item.gold, judgement),
            "reviews": [serialize_review(row) for row in judgement.reviews.all()],
        }
        return {**serialize_label(judgement), **told, **hidden}

    return paginate_rows(judgements, limit, lambda row: row.pk, serialize_judgement)


@router.post("/labels/{int:judgement_id}/review", auth=require_permission("label.work"), response=Reviewed, summary="Accept a label or send it back")
def review_label(request: HttpRequest, judgement_id: int, given: ReviewIn) -> object:
    """A returned label does not count until its author has submitted it again; an accepted label can only be changed by a reviewer."""
    asker = build_reviewer_request(request)
    judgement = judgement_of(asker, judgement_id)
    may_review(judgement.queue, asker.user)
    try:
        reviewed = record_review(judgement, asker.user, given.dict())
    except AnswerError as error:
        raise make_validation_problem(
            FieldProblem(field=problem.field, message=problem.message, fix=problem.fix) for problem in error.problems
        ) from None
    except Refusal as error:
        raise in_the_way(error) from None
    reviews = Review.objects.filter(judgement=reviewed).select_related("reviewer")
    return {"id": reviewed.pk, "state": reviewed.state, "item": reviewed.item_id, "reviews": [serialize_review(row) for row in reviews]}


@router.post(
    "/queues/{int:queue_id}/review/accept", auth=require_permission("label.work"), response=Accepted, summary="Accept labels without disagreement"
)
def accept_labels(request: HttpRequest, queue_id: int, given: AcceptIn) -> object:
    """Accepts one person's labels of complete items on which nobody disagrees, up to 500 per request."""
    asker, queue = reviewed_queue(request, queue_id)
    if given.by == asker.user.pk:
        raise make_invalid_problem("by", "is yourself; you cannot review your own labels", "someone else must accept them")
    if not Judgement.objects.filter(queue=queue, user=given.by).exclude(state=JudgementState.WITHDRAWN).exists():
        raise make_invalid_problem("by", "has no label in this queue", "use the id of someone who labelled in it")
    accepted, left = accept_uncontradicted(queue, given.by, asker.user)
    return {"accepted": accepted, "left": left}
