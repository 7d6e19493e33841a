"""Ablations: a recipe taken apart, its runs with several seeds, and what each method contributes. Grids are listed, stopped, resumed and deleted here
too; ``grids`` launches and reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.ablation_bodies import AblationIn, plan_ablation
from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.estimates import EstimateOut, estimate_launch_cost
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.launch_bodies import OUTPUT
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_before_moment, to_microseconds
from lab.edges.api.problems import ApiProblem, field_problem, make_validation_problem
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.training.ablations import launch
from lab.training.ablations.figures import AblationFigures, Contribution, VariantRow, build_ablation_figures, compute_ablation_progress
from lab.training.ablations.intervals import MeanEstimate
from lab.training.ablations.launch import MOST_RUNS
from lab.training.ablations.models import Ablation
from lab.training.ablations.plan import usual_name
from lab.training.ablations.variants import variants_of
from lab.training.runs.launch import PENDING, check_launch_spec
from lab.training.runs.placement import inherit_place
from lab.training.runs.stack import stack_of
from trainers.contract.spec import SpecError

router = make_router("Ablations")


class AblationOut(Schema):
    id: UUID
    kind: str = Field(description="ablation or grid.")
    name: str
    url: str
    run: UUID | None = Field(description="The run whose recipe is ablated; null if it was created from a spec.")
    base: str
    methods: list[str] = Field(description="Methods of the full stack, in order.")
    seeds: int = Field(description="Seeds per variant.")
    runs: int
    finished: int
    open: int = Field(description="Runs that have not ended.")
    created_by: Person | None
    created_at: datetime


class MeanOut(Schema):
    """A mean over seeds with its 95 % interval."""

    mean: float
    low: float | None = Field(description="null for a single seed.")
    high: float | None
    count: int = Field(description="Number of seeds.")


class QuantityOut(Schema):
    key: str
    metric: str = Field(description="The metric it is computed from; `@wall` is the time from start to end.")
    label: str
    unit: str
    reading: str = Field(description="How a run is reduced to one number.", examples=["the last measurement of each run"])


class SeedOut(Schema):
    seed: int
    run: UUID
    number: int = Field(description="Number of the run.")
    status: str
    values: dict[str, float] = Field(description="Quantity → value, for finished runs.")


class VariantOut(Schema):
    name: str = Field(description="full, base, or `without` and a method; in a grid the levels of its cell.", examples=["without rs-grpo"])
    seeds: list[SeedOut]
    means: dict[str, MeanOut | None] = Field(description="Quantity → mean over the finished seeds.")
    differences: dict[str, MeanOut | None] = Field(description="Quantity → this variant minus the full stack, paired by seed.")


class ShareOut(Schema):
    quantity: str
    contribution: MeanOut | None = Field(description="The full stack minus the stack without the method, paired by seed.")
    claimed: str = Field(description="higher or lower, if the method's paper claims a change.")
    verdict: str = Field(description="Verdict on the claim: held, not seen or opposite; empty with one seed.")


class ContributionOut(Schema):
    method: str
    shares: list[ShareOut]


class AblationProgress(Schema):
    total: int
    finished: int
    training: int
    waiting: int
    ended: int = Field(description="Stopped or failed runs, which have no results.")
    share: float = Field(description="From 0 to 1: mean progress of the runs.")


class AblationDetail(AblationOut):
    spec: dict[str, Any] = Field(description="Spec of the full stack, which can be launched.")
    progress: AblationProgress
    quantities: list[QuantityOut]
    variants: list[VariantOut]
    contributions: list[ContributionOut]


class PlanOut(Schema):
    runs: int = Field(description="Runs that would be queued.")
    variants: list[str]
    estimate: EstimateOut = Field(description="Assumes that every run costs as much as the full stack.")


class MoreIn(RequestBody):
    seeds: int = Field(1, ge=1, le=MOST_RUNS, description="Additional seeds per variant.")


class Stopped(Schema):
    stopped: int = Field(description="Runs that were asked to stop and save.")


class Resumed(Schema):
    resumed: int = Field(description="Runs that were queued again.")


def ablation_of(request: HttpRequest, ablation_id: UUID) -> Ablation:
    """The team's ablation with its counts. Raises Http404."""
    ablation = Ablation.objects.of(caller_of(request).team).counted().select_related("team", "author").filter(pk=ablation_id).first()
    if ablation is None:
        raise Http404("Your team has no such ablation.")
    return ablation


def serialize_ablation(ablation: Any) -> dict[str, Any]:
    """``ablation`` comes with its counts."""
    stack = stack_of(ablation.spec)
    fields = {"kind": ablation.noun} | {name: getattr(ablation, name) for name in ("name", "seeds", "runs", "finished", "open", "created_at")}
    about = {"id": ablation.pk, "url": build_absolute_url(team_path(ablation.team, "ablation", ablation.pk)), "run": ablation.source_id}
    return {
        **fields,
        **about,
        "base": stack.base,
        "methods": list(stack.methods),
        "created_by": serialize_person(ablation.author) if ablation.author else None,
    }


def whole_of(ablation: Ablation) -> dict[str, Any]:
    members = ablation.in_order()
    figures = build_ablation_figures(ablation, members)
    return {
        **serialize_ablation(ablation),
        "spec": ablation.spec,
        "progress": compute_ablation_progress([member.run for member in members]),
        "quantities": [
            {**{name: getattr(each, name) for name in ("key", "metric", "label", "unit")}, "reading": each.help} for each in figures.quantities
        ],
        "variants": [serialize_variant(row, collect_variant_values(figures, row.variant)) for row in figures.rows],
        "contributions": [serialize_contribution(each) for each in figures.contributions],
    }


def collect_variant_values(figures: AblationFigures, name: str) -> dict[int, dict[str, float]]:
    """Seed → quantity → value of a variant."""
    values: dict[int, dict[str, float]] = {}
    for chart in figures.chart:
        for variant in chart["variants"]:
            for dot in variant["dots"] if variant["name"] == name else ():
                values.setdefault(dot["seed"], {})[chart["key"]] = dot["value"]
    return values


def serialize_variant(row: VariantRow, values: dict[int, dict[str, float]]) -> dict[str, Any]:
    seeds = [
        {"seed": member.seed, "run": member.run_id, "number": member.run.number, "status": member.run.status, "values": values.get(member.seed, {})}
        for member in row.members
    ]

    means = {cell.quantity.key: serialize_estimate(cell.estimate) for cell in row.cells}
    differences = {cell.quantity.key: serialize_estimate(cell.difference) for cell in row.cells}
    return {"name": row.variant, "seeds": seeds, "means": means, "differences": differences}


def serialize_estimate(estimate: MeanEstimate | None) -> dict[str, Any] | None:
    return {name: getattr(estimate, name) for name in MeanOut.model_fields} if estimate else None


def serialize_contribution(contribution: Contribution) -> dict[str, Any]:
    shares = [
        {"quantity": share.quantity.key, "contribution": serialize_estimate(share.estimate), "claimed": share.claimed, "verdict": share.verdict}
        for share in contribution.shares
    ]
    return {"method": contribution.method, "shares": shares}


@router.get("/ablations", auth=require_permission("runs.read"), response=Page[AblationOut], summary="List ablations")
def list_ablations(request: HttpRequest, after: After, limit: Limit) -> object:
    """Ablations and grids, newest first."""
    rows = Ablation.objects.of(caller_of(request).team).counted().select_related("team", "author").filter(created_at__lt=parse_before_moment(after))
    return paginate_rows(list(rows.order_by("-created_at")[: limit + 1]), limit, lambda row: to_microseconds(row.created_at), serialize_ablation)


@router.get("/ablations/{uuid:ablation_id}", auth=require_permission("runs.read"), response=AblationDetail, summary="One ablation with its results")
def get_ablation(request: HttpRequest, ablation_id: UUID) -> object:
    """Every variant with its runs and means, and what each method contributes to the full stack, with intervals. Only finished runs count."""
    return whole_of(ablation_of(request, ablation_id))


@router.post("/ablations/check", auth=require_permission("runs.launch"), response=PlanOut, summary="Check an ablation")
def check_ablation(request: HttpRequest, given: AblationIn) -> object:
    """Returns the runs it would queue, without queueing them. Every variant is checked."""
    team = caller_of(request).team
    spec, source = plan_ablation(team, given)
    variants = variants_of(spec)
    runs = len(variants) * given.seeds
    full = check_launch_spec(team, {**variants[0].spec(spec, 0), OUTPUT: PENDING})
    return {
        "runs": runs,
        "variants": [variant.name for variant in variants],
        "estimate": estimate_launch_cost(team, inherit_place(source).queue, [full], runs),
    }


@router.post("/ablations", auth=require_permission("runs.launch"), response={201: AblationDetail, 200: AblationDetail}, summary="Launch an ablation")
def make_ablation(request: HttpRequest, given: AblationIn, key: Key) -> object:
    """Queues the base, the full stack and the stack without each method, with several seeds each. If one is refused, nothing is queued."""
    caller = caller_of(request)
    spec, source = plan_ablation(caller.team, given)
    name = given.name.strip() or usual_name(spec, source)

    def act() -> list[Any]:
        with problems_at("seeds"):
            return [launch.create_ablation(caller.team, caller.user, name, spec, given.seeds, source).pk]

    [key_made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, whole_of(ablation_of(request, key_made)))


@router.post(
    "/ablations/{uuid:ablation_id}/seeds",
    auth=require_permission("runs.launch"),
    response={201: AblationDetail, 200: AblationDetail},
    summary="Add seeds",
)
def add_seeds(request: HttpRequest, ablation_id: UUID, given: MoreIn, key: Key) -> object:
    """Queues every variant with additional seeds."""
    caller, ablation = caller_of(request), ablation_of(request, ablation_id)

    def act() -> list[Any]:
        with problems_at("seeds"):
            return [launch.add_seeds(ablation, caller.user, given.seeds).pk]

    [key_made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, whole_of(ablation_of(request, key_made)))


@router.post("/ablations/{uuid:ablation_id}/stop", auth=require_permission("runs.launch"), response=Stopped, summary="Stop an ablation")
def stop_ablation(request: HttpRequest, ablation_id: UUID) -> object:
    """Its running runs finish their step and save; queued runs are stopped immediately."""
    stopped = launch.request_ablation_stop(ablation_of(request, ablation_id))
    if not stopped:
        raise ApiProblem("conflict", "Nothing was changed: none of its runs is waiting or training.")
    return {"stopped": stopped}


@router.post("/ablations/{uuid:ablation_id}/resume", auth=require_permission("runs.launch"), response=Resumed, summary="Resume an ablation")
def resume_ablation(request: HttpRequest, ablation_id: UUID) -> object:
    """Its stopped, failed and lost runs are queued again and continue from their last checkpoints."""
    resumed = launch.resume_ablation_runs(ablation_of(request, ablation_id))
    if not resumed:
        raise ApiProblem("conflict", "Nothing was changed: none of its runs can be resumed.")
    return {"resumed": resumed}


@router.delete("/ablations/{uuid:ablation_id}", auth=require_permission("runs.launch"), response={204: None}, summary="Delete an ablation")
def delete_ablation(request: HttpRequest, ablation_id: UUID) -> object:
    """Its runs are kept."""
    launch.delete_ablation_record(ablation_of(request, ablation_id))
    return Status(204, None)


@contextmanager
def problems_at(field: str) -> Iterator[None]:
    """What launching refuses after all stands at ``field`` of the body."""
    try:
        yield
    except SpecError as error:
        raise make_validation_problem(field_problem(problem, field) for problem in error.problems) from None
