"""How far the labels of a queue can be trusted: agreement with intervals, each labeller's habits, and pausing somebody."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.queues import find_visible_queue
from lab.labelling.quality import labeller_pauses
from lab.labelling.quality.agreement import compute_agreement_measures, compute_pairwise_kappas, interpret_alpha
from lab.labelling.quality.agreement_page import labeller_of
from lab.labelling.quality.labellers import Labeller, gold_answers, summarize_labellers
from lab.labelling.quality.proportions import Proportion
from lab.labelling.quality.ratings import RatingTable, ratings_of
from lab.teams.accounts.models import Role, User
from lab.teams.accounts.permissions import is_role_allowed

router = make_router("Review and conflicts")


class CoefficientOut(Schema):
    value: float | None
    low: float | None = Field(description="Bounds of the 95 % interval.")
    high: float | None
    items: int = Field(description="Items with at least two labels.")
    labels: int
    why: str = Field(description="Why there is no value or no interval.")


class MeasureOut(CoefficientOut):
    name: str


class PairOut(CoefficientOut):
    """Cohen's kappa of two labellers."""

    first: Person
    second: Person


class AgreementOut(Schema):
    reading: str = Field(description="Interpretation of Krippendorff's alpha.")
    measures: list[MeasureOut]
    pairs: list[PairOut] = Field(description="Each pair of labellers, those with most labels first; only for people who lead queues.")


class IntervalOut(Schema):
    value: float | None = Field(description="null without answers.")
    low: float = Field(description="Bounds of the 95 % interval (Wilson).")
    high: float
    n: int = Field(description="Number of answers that the share is based on.")


class LabellerOut(Schema):
    user: Person
    labels: int = Field(description="Labels that count, without skips.")
    skips: int
    seconds: float | None = Field(description="Median seconds per label.")
    hasty: bool = Field(description="Less than a tenth of the queue's median time, over at least ten labels.")
    gold: IntervalOut = Field(description="Share of gold items labelled correctly.")
    others: IntervalOut = Field(description="Share of other people's labels on the same items that agree.")
    left: IntervalOut = Field(description="How often the answer shown first was chosen.")
    ties: IntervalOut
    paused_at: datetime | None
    paused_reason: str


class PauseIn(RequestBody):
    reason: str = Field(
        "", max_length=labeller_pauses.REASON, description="Shown to them when they come back.", examples=["Read the guidelines again."]
    )


def pairs_of(ratings: RatingTable) -> list[dict[str, Any]]:
    kappas = compute_pairwise_kappas(ratings, User.objects.in_bulk(ratings.people))
    return [
        {**cell.__dict__, "first": serialize_person(user), "second": serialize_person(other)}
        for user, cells in kappas.rows
        for other, cell in zip(kappas.people, cells, strict=True)
        if cell is not None
    ]


@router.get("/queues/{int:queue_id}/agreement", auth=require_permission("label.see"), response=AgreementOut, summary="Agreement between labellers")
def get_agreement(request: HttpRequest, queue_id: int) -> object:
    """People who only label get no numbers about others: an empty list."""
    caller, queue = caller_of(request), find_visible_queue(request, queue_id)
    leads = is_role_allowed(caller.role, "label.lead")
    if not leads and caller.role != Role.VIEWER:
        return {"reading": "Only people who lead queues and viewers can see the overall agreement.", "measures": [], "pairs": []}
    ratings = ratings_of(queue)
    coefficients = [measure.coefficient for measure in compute_agreement_measures(queue, ratings)]
    words = interpret_alpha(next(coefficient for coefficient in coefficients if coefficient.name.endswith("nominal")))
    return {"reading": words, "measures": coefficients, "pairs": pairs_of(ratings) if leads else []}


@router.get(
    "/queues/{int:queue_id}/labellers", auth=require_permission("label.see"), response=list[LabellerOut], summary="Statistics of each labeller"
)
def list_labellers(request: HttpRequest, queue_id: int) -> object:
    """Most labels first. People who lead queues see everyone who labelled or skipped; labellers see only themselves, viewers nobody."""
    caller, queue = caller_of(request), find_visible_queue(request, queue_id)
    if not is_role_allowed(caller.role, "label.work"):
        return []
    only = None if is_role_allowed(caller.role, "label.lead") else caller.person("labellers see only their own statistics").pk
    return [serialize_labeller(labeller) for labeller in summarize_labellers(queue, ratings_of(queue), gold_answers(queue, only), only)]


def serialize_labeller(labeller: Labeller) -> dict[str, Any]:
    shares: dict[str, Proportion] = {name: getattr(labeller, name) for name in ("gold", "others", "left", "ties")}
    plain = {name: getattr(labeller, name) for name in ("labels", "skips", "seconds", "hasty")}
    paused = labeller.member if labeller.paused else None
    told = {"paused_at": paused.paused_at if paused else None, "paused_reason": paused.paused_reason if paused else ""}
    return {**plain, **shares, **told, "user": serialize_person(labeller.user)}


@router.put(
    "/queues/{int:queue_id}/labellers/{int:user_id}/pause", auth=require_permission("label.lead"), response={204: None}, summary="Pause a labeller"
)
def pause_labeller(request: HttpRequest, queue_id: int, user_id: int, given: PauseIn) -> object:
    """They cannot label in this queue until resumed; their labels are kept, and the items they hold become available to others."""
    queue = find_visible_queue(request, queue_id)
    labeller_pauses.pause_queue_labeller(queue, labeller_of(queue, str(user_id)), given.reason)
    return Status(204, None)


@router.delete(
    "/queues/{int:queue_id}/labellers/{int:user_id}/pause",
    auth=require_permission("label.lead"),
    response={204: None},
    summary="Resume a labeller",
)
def resume_labeller(request: HttpRequest, queue_id: int, user_id: int) -> object:
    """Does nothing if they are not paused."""
    queue = find_visible_queue(request, queue_id)
    labeller_pauses.resume_queue_labeller(queue, labeller_of(queue, str(user_id)))
    return Status(204, None)
