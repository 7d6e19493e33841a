"""Sweeps: a recipe with many values of its hyperparameters, its trials and how they rank."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import caller_of, make_router, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.ablations import problems_at
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_before_moment, to_microseconds
from lab.edges.api.problems import ApiProblem
from lab.edges.api.sweep_bodies import SweepIn, plan_sweep
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.training.sweeps import launch
from lab.training.sweeps.leaderboard import TrialRow, build_leaderboard
from lab.training.sweeps.models import Sweep

router = make_router("Sweeps")


class SweepOut(Schema):
    id: UUID
    name: str
    url: str
    run: UUID | None = Field(description="The run whose recipe is swept; null if it was created from a spec.")
    state: str = Field(description="running, stopped or finished.")
    reason: str = Field(description="Why it stopped by itself; empty otherwise.")
    sampler: str
    metric: str
    direction: str
    halving: bool
    parallel: int
    seed: int
    planned: int = Field(description="Trials it has in the end.")
    launched: int
    finished: int
    open: int = Field(description="Trials that have not ended.")
    space: list[dict[str, Any]]
    spec: dict[str, Any] = Field(description="The spec that is searched around.")
    created_by: Person | None
    created_at: datetime


class TrialOut(Schema):
    number: int = Field(description="From 1, in the order they were chosen.")
    run: UUID | None = Field(description="null if it could not be launched, or was deleted.")
    run_number: int | None
    status: str = Field(description="That of its run; paused: by its sweep; refused: its values could not be launched; deleted.")
    values: dict[str, Any]
    score: float | None = Field(description="Of an unfinished trial what it has so far.")
    rank: int | None = Field(description="Among the finished trials, from 1.")
    reason: str = Field(description="Why it failed, was paused or refused.")


def sweep_of(request: HttpRequest, sweep_id: UUID) -> Sweep:
    """The team's sweep with its counts. Raises Http404."""
    sweep = Sweep.objects.of(caller_of(request).team).counted().select_related("team", "author").filter(pk=sweep_id).first()
    if sweep is None:
        raise Http404("Your team has no such sweep.")
    return sweep


def serialize_sweep(sweep: Any) -> dict[str, Any]:
    """``sweep`` comes with its counts."""
    plain = ("name", "state", "reason", "sampler", "metric", "direction", "halving", "parallel", "seed", "planned", "space", "spec", "created_at")
    about = {name: getattr(sweep, name) for name in (*plain, "launched", "finished", "open")}
    where = {"id": sweep.pk, "url": build_absolute_url(team_path(sweep.team, "sweep", sweep.pk)), "run": sweep.source_id}
    return {**about, **where, "created_by": serialize_person(sweep.author) if sweep.author else None}


def serialize_trial(row: TrialRow) -> dict[str, Any]:
    trial, run = row.trial, row.trial.run if row.trial.run and row.trial.run.binned_at is None else None
    return {
        "number": trial.number + 1,
        "run": run.pk if run else None,
        "run_number": run.number if run else None,
        "status": trial.status,
        "values": trial.values,
        "score": row.score,
        "rank": row.rank,
        "reason": trial.refusal or (run.reason if run else ""),
    }


@router.get("/sweeps", auth=require_permission("runs.read"), response=Page[SweepOut], summary="List sweeps")
def list_sweeps(request: HttpRequest, after: After, limit: Limit) -> object:
    """Newest first."""
    rows = Sweep.objects.of(caller_of(request).team).counted().select_related("team", "author").filter(created_at__lt=parse_before_moment(after))
    return paginate_rows(list(rows.order_by("-created_at")[: limit + 1]), limit, lambda row: to_microseconds(row.created_at), serialize_sweep)


@router.get("/sweeps/{uuid:sweep_id}", auth=require_permission("runs.read"), response=SweepOut, summary="One sweep")
def get_sweep(request: HttpRequest, sweep_id: UUID) -> object:
    return serialize_sweep(sweep_of(request, sweep_id))


@router.get("/sweeps/{uuid:sweep_id}/trials", auth=require_permission("runs.read"), response=list[TrialOut], summary="Trials of a sweep")
def list_trials(request: HttpRequest, sweep_id: UUID) -> object:
    """The best first; those that have not finished come last."""
    return [serialize_trial(row) for row in build_leaderboard(sweep_of(request, sweep_id)).rows]


@router.post("/sweeps", auth=require_permission("runs.launch"), response={201: SweepOut, 200: SweepOut}, summary="Start a sweep")
def make_sweep(request: HttpRequest, given: SweepIn, key: Key) -> object:
    """Queues the first runs; workers launch the rest. If the first is refused, nothing is queued."""
    caller = caller_of(request)
    sweep = plan_sweep(caller.team, caller.user, given)

    def act() -> list[Any]:
        with problems_at("space"):
            return [launch.create_sweep(sweep).pk]

    [key_made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_sweep(sweep_of(request, key_made)))


@router.post("/sweeps/{uuid:sweep_id}/stop", auth=require_permission("runs.launch"), response=SweepOut, summary="Stop a sweep")
def stop_sweep(request: HttpRequest, sweep_id: UUID) -> object:
    """Nothing more is launched; runs that train finish their step and save."""
    if not launch.stop_sweep(sweep_of(request, sweep_id)):
        raise ApiProblem("conflict", "Nothing was changed: the sweep is not running.")
    return serialize_sweep(sweep_of(request, sweep_id))


@router.post("/sweeps/{uuid:sweep_id}/continue", auth=require_permission("runs.launch"), response=SweepOut, summary="Continue a sweep")
def continue_sweep(request: HttpRequest, sweep_id: UUID) -> object:
    """What was stopped with it goes on first."""
    if not launch.continue_sweep(sweep_of(request, sweep_id), caller_of(request).user):
        raise ApiProblem("conflict", "Nothing was changed: the sweep is not stopped.")
    return serialize_sweep(sweep_of(request, sweep_id))


@router.delete("/sweeps/{uuid:sweep_id}", auth=require_permission("runs.launch"), response={204: None}, summary="Delete a sweep")
def delete_sweep(request: HttpRequest, sweep_id: UUID) -> object:
    """Its runs are kept."""
    launch.delete_sweep_record(sweep_of(request, sweep_id))
    return Status(204, None)
