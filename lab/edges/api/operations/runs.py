"""Runs: the list, one run, launching, and what can be done with a run."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, require_permission
from lab.edges.api.estimates import EstimateOut, estimate_launch_cost
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.launch_bodies import Launch, find_wish_queue, launch_wish, of_body, of_clone, preflight_wish, specs_of
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import ApiProblem, FieldProblem, make_validation_problem
from lab.lib.numbers import MAX_INTEGER
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.training.runs import listing, live, references, tags, verbs, wait_reasons
from lab.training.runs.launch import enqueue_run
from lab.training.runs.models import NAME_LENGTH, Run
from lab.training.runs.resumption import find_resume_objection
from lab.training.runs.wait_reasons import WaitReason

router = make_router("Runs")


class Can(Schema):
    stop: bool
    kill: bool
    resume: bool


class RunOut(Schema):
    id: UUID
    number: int = Field(description="Counts up within the team; shown as #17 in the browser.", examples=[17])
    name: str
    url: str
    status: str = Field(examples=["running"], description="queued, starting, running, stopping, stopped, finished, failed or lost.")
    reason: str = Field(description="Why it failed, was stopped or was lost.")
    waits: str | None = Field(description="Why a queued run has not started; null for other runs.", examples=["after #12"])
    recipe: str
    trainer: str = Field(examples=["grpo"])
    task: str
    policy: str = Field(description="Name of the starting policy, as shown in lists.")
    project: int | None
    tags: list[str]
    archived_at: datetime | None = Field(description="When it was archived; null if it is not.")
    parent: UUID | None = Field(description="The run it continues from.")
    cloned_from: UUID | None
    created_by: Person | None = Field(description="null when a service token launched it.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    step: int
    total_steps: int
    phase: str
    attempt: int
    tokens: int
    rollouts: int
    eta_seconds: int | None
    stalled_seconds: int | None = Field(description="Seconds without a report; null while it reports.")
    latest: dict[str, float | None] = Field(
        description="Values of the last step; heldout is the held-out reward of the last evaluation.",
        examples=[{"reward": 0.71, "loss": 0.02}],
    )
    can: Can = Field(description="Actions that its status allows; permissions of the token are not considered.")


class CheckpointOut(Schema):
    step: int
    final: bool = Field(description="An exported policy; runs cannot resume from it.")
    bytes: int
    created_at: datetime


class RunDetail(RunOut):
    notes: str = Field(description="Plain text.")
    spec: dict[str, Any] = Field(description="As launched, with ids and names instead of the lab's paths; can be launched again.")
    checkpoints: list[CheckpointOut]


class Launched(Schema):
    runs: list[RunOut] = Field(description="One run, or one per stage of a multi-stage recipe, in order.")
    warnings: list[FieldProblem] = Field(description="Warnings of the preflight check.")
    fresh: bool = Field(description="false if a previous request with the same Idempotency-Key launched them.")


class Checked(Schema):
    warnings: list[FieldProblem]
    estimate: EstimateOut


class Clone(RequestBody):
    name: str = Field("", max_length=NAME_LENGTH, description="Default: the name of the cloned run.")
    overrides: dict[str, Any] = Field({}, description="Changes to its spec, as for a launch.", examples=[{"training": {"learning_rate": 1e-6}}])
    check: bool = Field(True, description="false skips the trainer's preflight check, which takes a few seconds.")


class RunChange(RequestBody):
    """Omitted fields stay unchanged."""

    name: str | None = Field(None, max_length=NAME_LENGTH, examples=["baseline, seed 2"])
    notes: str | None = Field(None, max_length=verbs.NOTES_LENGTH, description="Plain text; replaces the notes.")
    tags: list[str] | None = Field(None, max_length=tags.MOST_TAGS, description="Replaces the tags.", examples=[["baseline"]])
    archived: bool | None = Field(None, description="Archives or unarchives it. Only a run that has ended can be archived.")


def serialize_run(run: Run, reason: WaitReason | None) -> dict[str, Any]:
    state = live.describe_run_state(run)
    latest = {name: value if isinstance(value, int | float) else None for name, value in state["latest"].items()}
    fields = {name: getattr(run, name) for name in RunOut.model_fields if hasattr(run, name)}
    return {
        **fields,
        "project": run.project_id,
        "parent": run.parent_id,
        "cloned_from": run.cloned_from_id,
        "created_by": serialize_person(run.created_by) if run.created_by else None,
        "url": build_absolute_url(team_path(run.team, "run", run.pk)),
        "waits": reason.why if reason else None,
        "latest": latest,
        "eta_seconds": state["eta_seconds"],
        "stalled_seconds": state["stalled_seconds"],
        "can": state["can"],
    }


def shown_all(request: HttpRequest, runs: list[Run]) -> list[dict[str, Any]]:
    reasons = wait_reasons.find_waiting_reasons(runs)
    for run in runs:
        run.team = caller_of(request).team
    return [serialize_run(run, reasons.get(run.pk)) for run in runs]


def find_team_run(request: HttpRequest, run_id: UUID) -> Run:
    """The team's run. Raises Http404."""
    run = Run.objects.of(caller_of(request).team).select_related("team", "parent", "created_by").filter(pk=run_id).first()
    if run is None:
        raise Http404("Your team has no such run.")
    return run


@router.get("/runs", auth=require_permission("runs.read"), response=Page[RunOut], summary="List runs")
def list_runs(
    request: HttpRequest,
    after: After,
    limit: Limit,
    status: str = Query("", description="A status, `open` (not ended) or `ended`.", examples=["running"]),
    recipe: str = Query("", description="Name of a recipe."),
    method: str = Query("", description="Name of a method in the stack."),
    task: str = Query("", description="Name of a task."),
    who: str = Query("", description="Id of the person who launched the run."),
    project: str = Query("", description="Id of a project, or `none` for runs without a project."),
    tag: str = Query("", description="A tag of the run."),
    archived: str = Query("", description="`1`: only archived runs; `any`: all runs; default: runs that are not archived."),
    q: str = Query("", description="Words in the name, or a run number."),
) -> object:
    """Newest first."""
    query = listing.read_query(request.GET)
    if query.notes:
        raise make_validation_problem(FieldProblem(field=field, message=note) for field, note in query.notes.items())
    newest = listing.filter_matching_runs(caller_of(request).team, query).order_by("-number")
    rows = list(newest.filter(number__lt=min(parse_after_id(after), MAX_INTEGER))[: limit + 1])
    page = paginate_rows(rows, limit, lambda run: run.number)
    return {**page, "items": shown_all(request, page["items"])}


@router.get("/runs/{uuid:run_id}", auth=require_permission("runs.read"), response=RunDetail, summary="One run")
def get_run(request: HttpRequest, run_id: UUID) -> object:
    """Includes its spec, which can be launched again, and its checkpoints."""
    return describe_run_detail(request, find_team_run(request, run_id))


def describe_run_detail(request: HttpRequest, run: Run) -> dict[str, Any]:
    return {
        **shown_all(request, [run])[0],
        "notes": run.notes,
        "spec": references.restore_reference_names(run.team, run.spec),
        "checkpoints": list(run.checkpoints.all()),
    }


@router.patch("/runs/{uuid:run_id}", auth=require_permission("runs.launch"), response=RunDetail, summary="Change a run")
def change_run(request: HttpRequest, run_id: UUID, given: RunChange) -> object:
    """Renames, tags or archives it, or changes its notes. The spec cannot be changed: clone the run instead."""
    run = find_team_run(request, run_id)
    with transaction.atomic():
        verbs.change_run_about(run, name=given.name, notes=given.notes, tags=given.tags)
        if given.archived is not None and given.archived != (run.archived_at is not None):
            outcome = (verbs.archive_runs if given.archived else verbs.unarchive_runs)(run.team, [run.number])
            if why := outcome.left.get(run.number):
                raise ApiProblem("conflict", f"Nothing was changed: run #{run.number} is {why}.")
    return describe_run_detail(request, find_team_run(request, run_id))


@router.post("/runs", auth=require_permission("runs.launch"), response={201: Launched, 200: Launched}, summary="Launch runs")
def launch_runs(request: HttpRequest, given: Launch, key: Key) -> object:
    """From a recipe with changes, or from a complete spec. If anything is invalid, nothing is queued and the response names every invalid field.
    A recipe with several stages creates one run per stage; each waits for the previous one.
    """
    caller = caller_of(request)
    wish = of_body(caller.team, given)
    warnings: list[FieldProblem] = []

    def act() -> list[Any]:
        if given.check:
            warnings.extend(preflight_wish(caller.team, wish))
        return [run.pk for run in launch_wish(caller, wish)]

    return answer_launch(request, *run_idempotent_action(request, caller, key, act), warnings)


def answer_launch(request: HttpRequest, ids: list[Any], fresh: bool, warnings: list[FieldProblem]) -> Status[dict[str, Any]]:
    runs = Run.objects.of(caller_of(request).team).select_related("parent", "created_by").filter(pk__in=ids).order_by("number")
    return Status(201 if fresh else 200, {"runs": shown_all(request, list(runs)), "warnings": warnings, "fresh": fresh})


@router.post("/runs/check", auth=require_permission("runs.launch"), response=Checked, summary="Check a launch")
def check_launch(request: HttpRequest, given: Launch) -> object:
    """Returns the warnings, how long the runs would take and whether they would wait for a quota, without launching anything."""
    team = caller_of(request).team
    wish = of_body(team, given)
    warnings = preflight_wish(team, wish) if given.check else []
    return {"warnings": warnings, "estimate": estimate_launch_cost(team, find_wish_queue(wish), specs_of(team, wish))}


@router.post("/runs/{uuid:run_id}/clone", auth=require_permission("runs.launch"), response={201: Launched, 200: Launched}, summary="Clone a run")
def clone_run(request: HttpRequest, run_id: UUID, given: Clone, key: Key) -> object:
    """Launches the run's spec again, with changes."""
    caller, run = caller_of(request), find_team_run(request, run_id)
    wish = of_clone(run, given.overrides, given.name or run.name)
    warnings: list[FieldProblem] = []

    def act() -> list[Any]:
        if given.check:
            warnings.extend(preflight_wish(caller.team, wish))
        return [run.pk for run in launch_wish(caller, wish)]

    return answer_launch(request, *run_idempotent_action(request, caller, key, act), warnings)


@router.post("/runs/{uuid:run_id}/stop", auth=require_permission("runs.launch"), response=RunOut, summary="Stop a run")
def stop_run(request: HttpRequest, run_id: UUID) -> object:
    """It finishes its step and saves, so it can be resumed; a queued run is stopped immediately."""
    run = find_team_run(request, run_id)
    return answer_run_change(request, run, run.request_stop())


@router.post("/runs/{uuid:run_id}/kill", auth=require_permission("runs.launch"), response=RunOut, summary="Kill a run")
def kill_run(request: HttpRequest, run_id: UUID) -> object:
    """Ends its trainer without saving; progress since the last checkpoint is lost."""
    run = find_team_run(request, run_id)
    return answer_run_change(request, run, run.is_active and run.request_stop(kill=True))


@router.post("/runs/{uuid:run_id}/resume", auth=require_permission("runs.launch"), response=RunOut, summary="Resume a run")
def resume_run(request: HttpRequest, run_id: UUID) -> object:
    """Queues another attempt, which continues from the last checkpoint."""
    run = find_team_run(request, run_id)
    done = run.resume()
    if done:
        enqueue_run(run)
    return answer_run_change(request, run, done)


def answer_run_change(request: HttpRequest, run: Run, done: bool) -> dict[str, Any]:
    """The run as it is now, told to every open page. Raises ApiProblem when nothing was changed."""
    if not done:
        raise ApiProblem("conflict", find_resume_objection(run) or f"Nothing was changed: run #{run.number} is {run.status}.")
    live.publish_state(run)
    return shown_all(request, [find_team_run(request, run.pk)])[0]
