"""Ablations: a recipe taken apart, its runs with several seeds, and what each method contributes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.ablations import launch
from lab.ablations.figures import Contribution, Figures, Row, figures, progress
from lab.ablations.intervals import Estimate
from lab.ablations.launch import MOST_RUNS
from lab.ablations.models import Ablation
from lab.ablations.plan import usual_name
from lab.ablations.variants import variants_of
from lab.accounts.addresses import absolute, team_path
from lab.api.ablating import AblationIn, planned
from lab.api.base import Given, caller_of, needs, noun
from lab.api.estimates import EstimateOut, estimate
from lab.api.idempotency import Key, once
from lab.api.launching import OUTPUT
from lab.api.operations.account import Person, person
from lab.api.paging import After, Limit, Page, page, whole
from lab.api.problems import ApiProblem, FieldProblem, refused
from lab.runs.launch import PENDING, check
from lab.runs.placing import beside
from lab.runs.stack import stack_of
from trainers.spec import SpecError

router = noun("Ablations")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_MICROSECONDS = 10**17  # since 1970; in the year 5138


class AblationOut(Schema):
    id: UUID
    name: str
    url: str
    run: UUID | None = Field(description="The run whose recipe was taken apart, where it was one.")
    base: str
    methods: list[str] = Field(description="Of the full stack, in order.")
    seeds: int = Field(description="Of each variant.")
    runs: int
    finished: int
    open: int = Field(description="Runs that will go on.")
    created_by: Person | None
    created_at: datetime


class MeanOut(Schema):
    """A mean over seeds with its 95 % interval."""

    mean: float
    low: float | None = Field(description="null for a single seed.")
    high: float | None
    count: int = Field(description="Seeds.")


class QuantityOut(Schema):
    key: str
    metric: str = Field(description="The metric it is read from; `@wall` is the time from start to end.")
    label: str
    unit: str
    reading: str = Field(description="How one number is made of a run.", examples=["the last measurement of each run"])


class SeedOut(Schema):
    seed: int
    run: UUID
    number: int = Field(description="Of the run.")
    status: str
    values: dict[str, float] = Field(description="Quantity to value, of a finished run.")


class VariantOut(Schema):
    name: str = Field(description="full, base, or `without` and a method.", examples=["without rs-grpo"])
    seeds: list[SeedOut]
    means: dict[str, MeanOut | None] = Field(description="Quantity to its mean over the finished seeds.")
    differences: dict[str, MeanOut | None] = Field(description="Quantity to this variant minus the full stack, paired by seed.")


class ShareOut(Schema):
    quantity: str
    contribution: MeanOut | None = Field(description="The full stack minus the stack without the method, paired by seed.")
    claimed: str = Field(description="higher or lower, where the method's paper claims to change it.")
    verdict: str = Field(description="Of a claim: held, not seen or opposite; empty with one seed.")


class ContributionOut(Schema):
    method: str
    shares: list[ShareOut]


class AblationProgress(Schema):
    total: int
    finished: int
    training: int
    waiting: int
    ended: int = Field(description="Stopped or failed: they have no figures.")
    share: float = Field(description="From 0 to 1, each run counting by its own steps.")


class AblationDetail(AblationOut):
    spec: dict[str, Any] = Field(description="The full stack, as it can be launched.")
    progress: AblationProgress
    quantities: list[QuantityOut]
    variants: list[VariantOut]
    contributions: list[ContributionOut]


class PlanOut(Schema):
    runs: int = Field(description="That would be queued.")
    variants: list[str]
    estimate: EstimateOut = Field(description="Each run counted as one of the full stack.")


class MoreIn(Given):
    seeds: int = Field(1, ge=1, le=MOST_RUNS, description="More of every variant.")


class Stopped(Schema):
    stopped: int = Field(description="Runs that were asked to stop and save.")


def ablation_of(request: HttpRequest, ablation_id: UUID) -> Ablation:
    """The team's ablation with its counts. Raises Http404."""
    found = Ablation.objects.of(caller_of(request).team).counted().select_related("team", "author").filter(pk=ablation_id).first()
    if found is None:
        raise Http404("Your team has no such ablation.")
    return found


def head(one: Any) -> dict[str, Any]:
    """``one`` comes with its counts."""
    stack = stack_of(one.spec)
    fields = {name: getattr(one, name) for name in ("name", "seeds", "runs", "finished", "open", "created_at")}
    about = {"id": one.pk, "url": absolute(team_path(one.team, "ablation", one.pk)), "run": one.source_id}
    return {**fields, **about, "base": stack.base, "methods": list(stack.methods), "created_by": person(one.author) if one.author else None}


def whole_of(one: Ablation) -> dict[str, Any]:
    members = one.in_order()
    found = figures(one, members)
    return {
        **head(one),
        "spec": one.spec,
        "progress": progress([member.run for member in members]),
        "quantities": [
            {**{name: getattr(each, name) for name in ("key", "metric", "label", "unit")}, "reading": each.help} for each in found.quantities
        ],
        "variants": [variant(row, values_of(found, row.variant)) for row in found.rows],
        "contributions": [contribution(each) for each in found.contributions],
    }


def values_of(found: Figures, name: str) -> dict[int, dict[str, float]]:
    """Seed → quantity → value of a variant."""
    values: dict[int, dict[str, float]] = {}
    for chart in found.chart:
        for one in chart["variants"]:
            for dot in one["dots"] if one["name"] == name else ():
                values.setdefault(dot["seed"], {})[chart["key"]] = dot["value"]
    return values


def variant(row: Row, values: dict[int, dict[str, float]]) -> dict[str, Any]:
    seeds = [
        {"seed": one.seed, "run": one.run_id, "number": one.run.number, "status": one.run.status, "values": values.get(one.seed, {})}
        for one in row.members
    ]

    means = {cell.quantity.key: estimated(cell.estimate) for cell in row.cells}
    differences = {cell.quantity.key: estimated(cell.difference) for cell in row.cells}
    return {"name": row.variant, "seeds": seeds, "means": means, "differences": differences}


def estimated(one: Estimate | None) -> dict[str, Any] | None:
    return {name: getattr(one, name) for name in MeanOut.model_fields} if one else None


def contribution(one: Contribution) -> dict[str, Any]:
    shares = [
        {"quantity": share.quantity.key, "contribution": estimated(share.estimate), "claimed": share.claimed, "verdict": share.verdict}
        for share in one.shares
    ]
    return {"method": one.method, "shares": shares}


@router.get("/ablations", auth=needs("runs.read"), response=Page[AblationOut], summary="List ablations")
def list_ablations(request: HttpRequest, after: After, limit: Limit) -> object:
    """Newest first."""
    rows = Ablation.objects.of(caller_of(request).team).counted().select_related("team", "author").filter(created_at__lt=before(after))
    return page(list(rows.order_by("-created_at")[: limit + 1]), limit, lambda row: (row.created_at - EPOCH) // timedelta(microseconds=1), head)


def before(after: str) -> datetime:
    """The moment in microseconds that a page begins before. Raises ApiProblem."""
    return EPOCH + timedelta(microseconds=min(whole(after), MOST_MICROSECONDS))


@router.get("/ablations/{uuid:ablation_id}", auth=needs("runs.read"), response=AblationDetail, summary="One ablation with its results")
def get_ablation(request: HttpRequest, ablation_id: UUID) -> object:
    """Every variant with its runs and means, and what each method contributes to the full stack, with intervals. Only finished runs count."""
    return whole_of(ablation_of(request, ablation_id))


@router.post("/ablations/check", auth=needs("runs.launch"), response=PlanOut, summary="Check an ablation")
def check_ablation(request: HttpRequest, given: AblationIn) -> object:
    """Which runs it would queue, without doing it. Every variant is checked."""
    team = caller_of(request).team
    spec, source = planned(team, given)
    variants = variants_of(spec)
    runs = len(variants) * given.seeds
    full = check(team, {**variants[0].spec(spec, 0), OUTPUT: PENDING})
    return {"runs": runs, "variants": [one.name for one in variants], "estimate": estimate(team, beside(source).queue, [full], runs)}


@router.post("/ablations", auth=needs("runs.launch"), response={201: AblationDetail, 200: AblationDetail}, summary="Launch an ablation")
def make_ablation(request: HttpRequest, given: AblationIn, key: Key) -> object:
    """Queues the base, the full stack and the stack without each method, with several seeds each: all of them or, when one is refused, none."""
    caller = caller_of(request)
    spec, source = planned(caller.team, given)
    name = given.name.strip() or usual_name(spec, source)

    def act() -> list[Any]:
        with problems_at("seeds"):
            return [launch.create(caller.team, caller.user, name, spec, given.seeds, source).pk]

    [made], fresh = once(request, caller, "ablate", key, act)
    return Status(201 if fresh else 200, whole_of(ablation_of(request, made)))


@router.post(
    "/ablations/{uuid:ablation_id}/seeds", auth=needs("runs.launch"), response={201: AblationDetail, 200: AblationDetail}, summary="Add seeds"
)
def add_seeds(request: HttpRequest, ablation_id: UUID, given: MoreIn, key: Key) -> object:
    """Queues every variant with further seeds."""
    caller, found = caller_of(request), ablation_of(request, ablation_id)

    def act() -> list[Any]:
        with problems_at("seeds"):
            return [launch.add_seeds(found, caller.user, given.seeds).pk]

    [made], fresh = once(request, caller, "ablate-more", key, act)
    return Status(201 if fresh else 200, whole_of(ablation_of(request, made)))


@router.post("/ablations/{uuid:ablation_id}/stop", auth=needs("runs.launch"), response=Stopped, summary="Stop an ablation")
def stop_ablation(request: HttpRequest, ablation_id: UUID) -> object:
    """Each of its runs that waits or trains finishes its step and saves."""
    asked = launch.stop(ablation_of(request, ablation_id))
    if not asked:
        raise ApiProblem("conflict", "Nothing was changed: no run of it is waiting or training.")
    return {"stopped": asked}


@router.delete("/ablations/{uuid:ablation_id}", auth=needs("runs.launch"), response={204: None}, summary="Delete an ablation")
def delete_ablation(request: HttpRequest, ablation_id: UUID) -> object:
    """Its runs stay."""
    launch.delete(ablation_of(request, ablation_id))
    return Status(204, None)


@contextmanager
def problems_at(field: str) -> Iterator[None]:
    """What launching refuses after all stands at ``field`` of the body."""
    try:
        yield
    except SpecError as error:
        raise refused(FieldProblem(field=field, message=one.message, fix=one.fix or "") for one in error.problems) from None
