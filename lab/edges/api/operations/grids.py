"""Experiment grids: every combination of up to three factors with several seeds, as a matrix. ``ablations`` lists, stops and deletes them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import Query, caller_of, make_router, require_permission
from lab.edges.api.estimates import EstimateOut, estimate_launch_cost
from lab.edges.api.grid_bodies import GridIn, plan_grid
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.launch_bodies import OUTPUT
from lab.edges.api.operations.ablations import (
    AblationOut,
    AblationProgress,
    MeanOut,
    ablation_of,
    problems_at,
    serialize_ablation,
    serialize_estimate,
)
from lab.training.ablations import launch
from lab.training.ablations.figures import compute_ablation_progress
from lab.training.ablations.grid_figures import (
    GridEntry,
    GridFigures,
    GridTransfer,
    build_grid_figures,
    choose_quantity,
    list_grid_quantities,
)
from lab.training.ablations.models import Ablation
from lab.training.runs.launch import PENDING, check_launch_spec
from lab.training.runs.placement import inherit_place

router = make_router("Grids")


class GridLevelOut(Schema):
    name: str
    changes: dict[str, Any]
    metric: str = Field(description="The metric that is read; empty for a level that changes the runs.")


class GridFactorOut(Schema):
    name: str
    levels: list[GridLevelOut]


class GridSeedOut(Schema):
    seed: int
    run: UUID
    number: int = Field(description="Number of the run.")
    status: str
    value: float | None = Field(description="null until the run has finished with a value.")
    before: float | None = Field(description="The same metric before training, where it was measured.")
    short: bool = Field(description="It ended before the budget was used up or reached, and is read at its end.")


class GridCellOut(Schema):
    levels: list[str] = Field(description="One of each factor, in order.")
    metric: str
    mean: MeanOut | None = Field(description="Over the finished seeds.")
    state: str = Field(description="What its other runs do.", examples=["1 training, 2 waiting"])
    seeds: list[GridSeedOut]


class TransferOut(Schema):
    """Gains since before training: `own` measured on the trained level, `others` the mean over the other levels, `ratio` their quotient."""

    trained: str = Field(description="The factor that says what was trained.")
    measured: str = Field(description="The factor that says what was measured.")
    level: str
    others_fixed: list[str] = Field(description="Levels of the remaining factors.")
    own: MeanOut
    others: MeanOut
    ratio: float | None = Field(description="null where nothing was gained on the trained level.")
    half: float | None = Field(description="Half the width of the ratio's 95 % interval (jackknife over seeds); null for one seed.")


class GridDetail(AblationOut):
    spec: dict[str, Any] = Field(description="The recipe that the levels change.")
    factors: list[GridFactorOut]
    budget: dict[str, Any] = Field(description="Empty: each run is read at its end.")
    progress: AblationProgress
    quantity: str = Field(description="What the cells show; one of `quantities`.")
    quantities: list[str]
    cells: list[GridCellOut] = Field(description="The last factor changes fastest.")
    transfers: list[TransferOut]


class GridPlanOut(Schema):
    runs: int = Field(description="Runs that would be queued.")
    cells: list[str]
    estimate: EstimateOut = Field(description="Assumes that every run costs as much as one of the first cell.")


def describe_grid(grid: Ablation, quantity: str = "") -> dict[str, Any]:
    """``grid`` comes with its counts."""
    members = grid.in_order()
    quantities = list_grid_quantities(grid, members)
    figures = build_grid_figures(grid, members, choose_quantity(quantities, quantity))
    return {
        **serialize_ablation(grid),
        "spec": grid.spec,
        "factors": [
            {"name": factor.name, "levels": [{"name": one.name, "changes": dict(one.changes), "metric": one.metric} for one in factor.levels]}
            for factor in figures.factors
        ],
        "budget": grid.budget,
        "progress": compute_ablation_progress([member.run for member in members]),
        "quantity": figures.quantity.key,
        "quantities": [each.key for each in quantities],
        "cells": [serialize_cell(entry) for entry in figures.entries.values()],
        "transfers": serialize_transfers(figures),
    }


def serialize_cell(entry: GridEntry) -> dict[str, Any]:
    seeds = [
        {
            "seed": member.seed,
            "run": member.run_id,
            "number": member.run.number,
            "status": member.run.status,
            "value": entry.values.get(member.seed),
            "before": entry.starts.get(member.seed),
            "short": member.seed in entry.short,
        }
        for member in entry.members
    ]
    about = {"levels": list(entry.key), "metric": entry.quantity.metric, "state": entry.state}
    return {**about, "mean": serialize_estimate(entry.estimate), "seeds": seeds}


def serialize_transfers(figures: GridFigures) -> list[dict[str, Any]]:
    return [serialize_transfer(transfer) for transfer in figures.list_transfers()]


def serialize_transfer(transfer: GridTransfer) -> dict[str, Any]:
    found = transfer.ratio
    about = {"trained": transfer.trained, "measured": transfer.measured, "level": transfer.level, "others_fixed": list(transfer.rest)}
    gains = {"own": serialize_estimate(found.own), "others": serialize_estimate(found.others)}
    return {**about, **gains, "ratio": found.ratio, "half": found.half}


@router.post("/grids/check", auth=require_permission("runs.launch"), response=GridPlanOut, summary="Check a grid")
def check_grid(request: HttpRequest, given: GridIn) -> object:
    """Returns the runs it would queue, without queueing them. Every cell is checked."""
    caller = caller_of(request)
    grid = plan_grid(caller.team, caller.user, given)
    cells = grid.list_variants()
    first = check_launch_spec(caller.team, {**cells[0].spec(grid.spec, 0), OUTPUT: PENDING})
    runs = len(cells) * grid.seeds
    estimate = estimate_launch_cost(caller.team, inherit_place(grid.source).queue, [first], runs)
    return {"runs": runs, "cells": [cell.name for cell in cells], "estimate": estimate}


@router.post("/grids", auth=require_permission("runs.launch"), response={201: GridDetail, 200: GridDetail}, summary="Launch a grid")
def make_grid(request: HttpRequest, given: GridIn, key: Key) -> object:
    """Queues every combination of the levels, with several seeds each. If one is refused, nothing is queued."""
    caller = caller_of(request)
    grid = plan_grid(caller.team, caller.user, given)

    def act() -> list[Any]:
        with problems_at("factors"):
            return [launch.create_grid(grid).pk]

    [key_made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, describe_grid(ablation_of(request, key_made)))


@router.get("/grids/{uuid:ablation_id}", auth=require_permission("runs.read"), response=GridDetail, summary="One grid with its matrix")
def get_grid(
    request: HttpRequest,
    ablation_id: UUID,
    quantity: str = Query("", max_length=200, description="What the cells show; empty: held-out accuracy."),
) -> object:
    """Every cell with its runs and their mean, with intervals. Only finished runs count. An ablation is read as a grid of its variants."""
    return describe_grid(ablation_of(request, ablation_id), quantity)
