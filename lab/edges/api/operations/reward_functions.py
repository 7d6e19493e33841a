"""Reward functions of the team: their versions, trying a definition on completions, and backtests over stored rollouts."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import SCOPES, Caller, Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.operations.runs import find_team_run
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import ApiProblem
from lab.lib.numbers import MAX_INTEGER
from lab.lib.refusals import InputRefusal, Problem
from lab.rollouts.backtests.models import Backtest
from lab.rollouts.backtests.requests import prepare_backtest, start_backtest
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.training.rewards.definition_check import LONGEST, MOST_ROWS, contains_code, refuse_wrong_definition, try_definition
from lab.training.rewards.models import NAME_LENGTH, NOTE_LENGTH, RewardFunction, RewardVersion
from lab.training.rewards.verbs import CODE, add_version, create_function

router = make_router("Rewards")
SCOPES.add(CODE)
EXAMPLE = {"kind": "library", "function": "exact-match", "config": {"answer": "boxed"}}
DEFINITION = "Kinds: library (function, config), code (source), sum, product, gate; as in `rewards` of a run's spec."


class RewardFunctionOut(Schema):
    id: int
    name: str
    url: str
    version: int = Field(description="Number of the newest version.")
    definition: dict[str, Any] = Field(description="Of the newest version.")
    archived_at: datetime | None
    created_at: datetime


class RewardVersionOut(Schema):
    function: int
    number: int
    definition: dict[str, Any]
    note: str
    author: Person | None
    created_at: datetime


class RewardFunctionIn(RequestBody):
    name: str = Field(min_length=1, max_length=NAME_LENGTH, examples=["Boxed answer"])
    definition: dict[str, Any] = Field(description=DEFINITION, examples=[EXAMPLE])
    note: str = Field("", max_length=NOTE_LENGTH)


class RewardVersionIn(RequestBody):
    definition: dict[str, Any] = Field(description=DEFINITION, examples=[EXAMPLE])
    note: str = Field("", max_length=NOTE_LENGTH)


class TriedRowIn(RequestBody):
    completion: str = Field(max_length=LONGEST)
    reference: str = Field("", max_length=LONGEST)
    data: dict[str, Any] = {}
    prompt: str = Field("", max_length=LONGEST)


class TryIn(RequestBody):
    definition: dict[str, Any] = Field(description=DEFINITION, examples=[EXAMPLE])
    rows: list[TriedRowIn] = Field(min_length=1, max_length=MOST_ROWS)


class TriedScoreOut(Schema):
    value: float | None = Field(description="null: no opinion, or an error.")
    error: str
    seconds: float


class TryOut(Schema):
    scores: list[TriedScoreOut] = Field(description="In the order of the rows.")
    seconds: float


class BacktestIn(RequestBody):
    version: int | None = Field(None, ge=1, le=MAX_INTEGER, description="Number of the version of `function`; null: its newest.")
    function: int | None = Field(None, ge=1, le=MAX_INTEGER, description="Id of a reward function; either this or `definition`.")
    definition: dict[str, Any] | None = Field(None, description="A draft.")
    first_step: int | None = Field(None, ge=0, le=MAX_INTEGER, description="null: the first there is.")
    last_step: int | None = Field(None, ge=0, le=MAX_INTEGER, description="null: the last there is.")
    against: str = Field("", max_length=200, description="Reward column to compare with; empty: the total reward.")


class ErrorCountOut(Schema):
    message: str
    count: int


class BacktestSummaryOut(Schema):
    rollouts: int
    scored: int
    errors: int
    abstained: int
    messages: list[ErrorCountOut]
    groups: int
    pairs: int = Field(description="Pairs of answers of a group that the stored rewards rank.")
    flipped_pairs: int
    tied_pairs: int
    signs: int = Field(description="Rollouts whose advantage (reward − mean of the group) is not 0 on both sides.")
    flipped_signs: int
    flat_before: int = Field(description="Zero-variance groups by the stored rewards.")
    flat_after: int
    new_flat: int
    correlation: float | None
    mean_before: float | None
    mean_after: float | None
    seconds_mean: float = Field(description="Per call.")
    seconds_longest: float


class FlipOut(Schema):
    id: int = Field(description="Id of the rollout.")
    step: int
    group: int
    sample: int
    before: float
    after: float
    advantage_before: float
    advantage_after: float


class BacktestOut(Schema):
    id: UUID
    url: str
    run: UUID
    name: str
    definition: dict[str, Any]
    first_step: int
    last_step: int
    against: str
    status: str = Field(examples=["finished"], description="queued, running, finished or failed.")
    done: int = Field(description="Rollouts scored so far.")
    total: int
    error: str
    created_at: datetime
    finished_at: datetime | None
    summary: BacktestSummaryOut | None = Field(description="null until it is finished.")
    flips: list[FlipOut] = Field(description="At most 200, the largest change first.")


def check_definition(caller: Caller, given: dict[str, Any]) -> dict[str, Any]:
    """The complete definition. Raises Refusal, and ApiProblem where Python is not allowed."""
    definition = refuse_wrong_definition(caller.team, given)
    if contains_code(definition) and not caller.may(CODE):
        raise ApiProblem("permission", f"Python in a reward function needs the permission {CODE}, which this token or role does not have.")
    return definition


def select_functions(request: HttpRequest) -> Any:
    return RewardFunction.objects.of(caller_of(request).team).select_related("team").prefetch_related("versions")


def serialize_function(function: RewardFunction) -> dict[str, Any]:
    newest = function.newest
    url = build_absolute_url(team_path(function.team, "reward", function.pk))
    fields = {name: getattr(function, name) for name in ("name", "archived_at", "created_at")}
    return {**fields, "id": function.pk, "url": url, "version": newest.number, "definition": newest.definition}


def serialize_version(version: RewardVersion) -> dict[str, Any]:
    author = serialize_person(version.created_by) if version.created_by else None
    fields = {name: getattr(version, name) for name in ("number", "definition", "note", "created_at")}
    return {**fields, "function": version.function_id, "author": author}


@router.get("/reward-functions", auth=require_permission("rewards.read"), response=Page[RewardFunctionOut], summary="List reward functions")
def list_reward_functions(
    request: HttpRequest, after: After, limit: Limit, archived: bool = Query(False, description="Archived ones in place of the others.")
) -> object:
    """Newest first."""
    rows = select_functions(request).filter(archived_at__isnull=not archived, pk__lt=parse_after_id(after)).order_by("-pk")
    return paginate_rows(list(rows[: limit + 1]), limit, lambda row: row.pk, serialize_function)


@router.post(
    "/reward-functions",
    auth=require_permission("rewards.write"),
    response={201: RewardFunctionOut, 200: RewardFunctionOut},
    summary="Create a reward function",
)
def create_reward_function(request: HttpRequest, given: RewardFunctionIn, key: Key) -> object:
    """With its version 1. The definition is checked; Python in it needs `rewards.code` and runs only in the sandbox."""
    caller = caller_of(request)
    definition = check_definition(caller, given.definition)
    act = lambda: [create_function(caller.team, caller.user, given.name, definition, given.note).function_id]  # noqa: E731
    [made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_function(one_of(select_functions(request), int(made))))


@router.post("/reward-functions/try", auth=require_permission("rewards.write"), response=TryOut, summary="Try a definition")
def try_reward_function(request: HttpRequest, given: TryIn) -> object:
    """Scores the rows in a child process, within ten seconds. What loads a model or asks an endpoint is refused: backtest it."""
    caller = caller_of(request)
    definition = check_definition(caller, given.definition)
    return try_definition(caller.team, definition, [row.model_dump() for row in given.rows])


@router.get("/reward-functions/{int:reward_id}", auth=require_permission("rewards.read"), response=RewardFunctionOut, summary="A reward function")
def get_reward_function(request: HttpRequest, reward_id: int) -> object:
    return serialize_function(one_of(select_functions(request), reward_id))


@router.get(
    "/reward-functions/{int:reward_id}/versions",
    auth=require_permission("rewards.read"),
    response=Page[RewardVersionOut],
    summary="List its versions",
)
def list_reward_versions(request: HttpRequest, reward_id: int, after: After, limit: Limit) -> object:
    """Newest first."""
    function = one_of(select_functions(request), reward_id)
    rows = RewardVersion.objects.filter(function=function, pk__lt=parse_after_id(after)).select_related("created_by").order_by("-pk")
    return paginate_rows(list(rows[: limit + 1]), limit, lambda row: row.pk, serialize_version)


@router.post(
    "/reward-functions/{int:reward_id}/versions",
    auth=require_permission("rewards.write"),
    response={201: RewardVersionOut, 200: RewardVersionOut},
    summary="Create a version",
)
def create_reward_version(request: HttpRequest, reward_id: int, given: RewardVersionIn, key: Key) -> object:
    """Refused where nothing changed. Runs and tasks keep the version they have."""
    caller, function = caller_of(request), one_of(select_functions(request), reward_id)
    definition = check_definition(caller, given.definition)
    [made], fresh = run_idempotent_action(request, caller, key, lambda: [add_version(function, caller.user, definition, given.note).pk])
    rows = RewardVersion.objects.of(caller.team).select_related("created_by")
    return Status(201 if fresh else 200, serialize_version(one_of(rows, int(made))))


def find_backtest(request: HttpRequest, backtest_id: UUID) -> Backtest:
    rows = Backtest.objects.of(caller_of(request).team).filter(pk=backtest_id)
    rows.lose()
    backtest = rows.select_related("team").first()
    if backtest is None:
        raise Http404
    return backtest


def serialize_backtest(backtest: Backtest) -> dict[str, Any]:
    names = ("name", "definition", "first_step", "last_step", "against", "status", "done", "total", "error", "created_at", "finished_at")
    result = backtest.result if backtest.readable and backtest.result else {}
    url = build_absolute_url(team_path(backtest.team, "backtest", backtest.pk))
    fields = {name: getattr(backtest, name) for name in names}
    return {**fields, "id": backtest.pk, "run": backtest.run_id, "url": url, "summary": result.get("summary"), "flips": result.get("flips", [])}


def find_asked_version(request: HttpRequest, given: BacktestIn) -> RewardVersion | None:
    """None for a draft. Raises InputRefusal."""
    if (given.function is None) == (given.definition is None):
        raise InputRefusal([Problem("function", "Name a function or give a definition.", "Send one of both.")])
    if given.function is None:
        return None
    rows = RewardVersion.objects.of(caller_of(request).team).filter(function=given.function).select_related("function")
    version = (rows if given.version is None else rows.filter(number=given.version)).first()
    if version is None:
        raise InputRefusal([Problem("function", "Your team has no such version of a reward function.", "List them at /reward-functions.")])
    return version


@router.post(
    "/runs/{uuid:run_id}/backtests",
    auth=require_permission("rewards.write"),
    response={201: BacktestOut, 200: BacktestOut},
    summary="Backtest a reward function",
)
def create_backtest(request: HttpRequest, run_id: UUID, given: BacktestIn, key: Key) -> object:
    """Queues it for a worker; read it until it is finished. The newest 2,000 training rollouts of the steps at most."""
    caller, run = caller_of(request), find_team_run(request, run_id)
    version = find_asked_version(request, given)
    definition = version.definition if version else check_definition(caller, given.definition or {})
    backtest = prepare_backtest(run, caller.user, definition, version, (given.first_step, given.last_step), given.against)

    def act() -> list[Any]:
        start_backtest(backtest)
        return [backtest.pk]

    [made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_backtest(find_backtest(request, UUID(str(made)))))


@router.get("/backtests/{uuid:backtest_id}", auth=require_permission("rewards.read"), response=BacktestOut, summary="A backtest")
def get_backtest(request: HttpRequest, backtest_id: UUID) -> object:
    """How far it is, or what it found."""
    return serialize_backtest(find_backtest(request, backtest_id))
