"""Review: labels are accepted or sent back with a comment, one by one or all that nobody contradicts. Nobody reviews their own."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema

from lab.accounts.roles import may
from lab.api.asked import AskedOut, asked_of
from lab.api.base import Given, Query, needs, noun
from lab.api.operations.account import Person, person
from lab.api.operations.adjudication import in_the_way, reviewed_queue, reviewer
from lab.api.operations.queues import LabelOut, label
from lab.api.paging import After, Limit, Page, page, whole
from lab.api.problems import FieldProblem, invalid, refused
from lab.browse.address import MAX_ID
from lab.labels.answers import AnswerError
from lab.labels.models import Judgement, JudgementState
from lab.labels.outcome import right
from lab.labels.standing import Refused
from lab.quality.access import judgement_of, reviewers_only
from lab.quality.models import Review
from lab.quality.posted import COMMENT
from lab.quality.reviewing import Asked, accept_uncontradicted, judgements_of, reviewed

router = noun("Review and conflicts")


class ReviewOut(Schema):
    by: Person | None
    accepted: bool
    comment: str
    at: datetime


class ToReview(LabelOut):
    asked: AskedOut = Field(description="Its item, the answers in the item's places.")
    gold: bool | None = Field(description="Whether it is right, for an item whose answer is known.")
    reviews: list[ReviewOut]


class ReviewIn(Given):
    act: Literal["accept", "return"]
    comment: str = Field("", max_length=COMMENT, description="A label is sent back with a reason.", examples=["Look at the last step again."])


class Reviewed(Schema):
    id: int
    state: str = Field(description="accepted or returned.")
    item: int
    reviews: list[ReviewOut]


class AcceptIn(Given):
    by: int = Field(ge=1, le=MAX_ID, description="Whose labels: the id of a person.", examples=[3])


class Accepted(Schema):
    accepted: int
    left: int = Field(description="Ask again while there are some.")


def review(one: Review) -> dict[str, Any]:
    by = person(one.reviewer) if one.reviewer else None
    return {"by": by, "accepted": one.accepted, "comment": one.comment, "at": one.created_at}


@router.get("/queues/{int:queue_id}/review", auth=needs("label.work"), response=Page[ToReview], summary="Labels to review")
def list_to_review(
    request: HttpRequest,
    queue_id: int,
    after: After,
    limit: Limit,
    state: Literal["submitted", "accepted", "returned", "skipped"] = Query("submitted", description="Those that wait, that were reviewed, or skips."),
    by: int | None = Query(None, ge=1, le=MAX_ID, description="Only labels of that person."),
) -> object:
    """Of others, in the order they came. For those who lead, and the queue's reviewers."""
    asker, queue = reviewed_queue(request, queue_id)
    rows = judgements_of(asker, queue, Asked({"state": state, "by": by or ""})).filter(pk__gt=whole(after) if after else 0)
    found = list(rows.select_related("user", "item").prefetch_related("preferences", "reviews__reviewer")[: limit + 1])
    for one in found:
        one.item.queue = queue
    asked = asked_of(queue, [(one.item, list(range(len(one.order)))) for one in found[:limit]], origins=not queue.blind)
    blinded = queue.blind and not may(asker, "label.lead")
    hidden: dict[str, Any] = {"rollouts": [], "preferences": []} if blinded else {}  # ids tell which answer is the later one

    def shown(one: Judgement) -> dict[str, Any]:
        told = {"asked": asked[one.item_id], "gold": right(one.item.gold, one), "reviews": [review(row) for row in one.reviews.all()]}
        return {**label(one), **told, **hidden}

    return page(found, limit, lambda row: row.pk, shown)


@router.post("/labels/{int:judgement_id}/review", auth=needs("label.work"), response=Reviewed, summary="Accept a label or send it back")
def review_label(request: HttpRequest, judgement_id: int, given: ReviewIn) -> object:
    """A label that was sent back does not count until its author has looked again; one that was accepted is changed by nobody but a reviewer."""
    asker = reviewer(request)
    found = judgement_of(asker, judgement_id)
    reviewers_only(asker, found.queue)
    try:
        made = reviewed(found, asker.user, given.dict())
    except Refused as error:
        raise in_the_way(error) from None
    except AnswerError as error:
        raise refused(FieldProblem(field=one.field, message=one.message, fix=one.fix) for one in error.problems) from None
    reviews = Review.objects.filter(judgement=made).select_related("reviewer")
    return {"id": made.pk, "state": made.state, "item": made.item_id, "reviews": [review(row) for row in reviews]}


@router.post("/queues/{int:queue_id}/review/accept", auth=needs("label.work"), response=Accepted, summary="Accept what nobody contradicts")
def accept_labels(request: HttpRequest, queue_id: int, given: AcceptIn) -> object:
    """One person's labels of complete items on which nobody disagrees, 500 at most at once."""
    asker, queue = reviewed_queue(request, queue_id)
    if given.by == asker.user.pk:
        raise invalid("by", "is yourself, and nobody reviews their own labels", "let somebody else accept them")
    if not Judgement.objects.filter(queue=queue, user=given.by).exclude(state=JudgementState.WITHDRAWN).exists():
        raise invalid("by", "has no label in this queue", "take the id of somebody who labelled in it")
    accepted, left = accept_uncontradicted(queue, given.by, asker.user)
    return {"accepted": accepted, "left": left}
