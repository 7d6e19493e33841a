"""What if: stored rollouts of a step put through other reward weights, another base or other methods, without training anything."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.runs import find_team_run
from lab.edges.api.problems import FieldProblem, make_validation_problem
from lab.lib.numbers import MAX_INTEGER
from lab.rollouts.replay.models import Replay
from lab.rollouts.replay.questions import enqueue_replay, prepare_question
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.training.catalog.catalog import load_catalog

router = make_router("Rollouts")


class MethodOf(RequestBody):
    name: str = Field(max_length=100, examples=["rs-grpo"])
    config: dict[str, Any] = {}


class QuestionIn(RequestBody):
    step: int = Field(ge=0, le=MAX_INTEGER, examples=[20])
    group: int | None = Field(None, ge=0, le=MAX_INTEGER, description="Only this group; null: all groups of the step.")
    base: MethodOf | None = Field(None, description="null: the run's own.")
    methods: list[MethodOf] | None = Field(None, max_length=20, description="In order; null: the run's own.")
    weights: dict[str, float] = Field({}, description="Weights of reward functions that differ from the run's.", examples=[{"format": 0.5}])


class ReplayedMemberOut(Schema):
    id: int = Field(description="Id of the rollout.")
    group: int
    sample: int
    before: float = Field(description="Mean effective advantage over its tokens in the loss, as trained.")
    after: float = Field(description="The same, replayed.")
    change: float = Field(description="Mean absolute difference over its tokens.")
    tokens: int
    flipped: int = Field(description="Tokens whose advantage changes its sign.")
    sign_flipped: bool


class SummaryOut(Schema):
    members: int
    flipped_members: int
    tokens: int
    flipped_tokens: int
    correlation: float | None = Field(description="Pearson, of before and after over members; null without variance.")
    change: float = Field(description="Mean absolute difference over all tokens.")
    same: bool = Field(description="Nothing differs by more than rounding.")


class QuestionOut(Schema):
    id: UUID
    url: str
    run: UUID
    step: int
    group: int | None
    base: dict[str, Any]
    methods: list[dict[str, Any]]
    weights: dict[str, float]
    status: str = Field(examples=["finished"], description="queued, running, finished or failed.")
    error: str
    problems: list[FieldProblem]
    created_at: datetime
    finished_at: datetime | None
    summary: SummaryOut | None = Field(description="null until it is finished.")
    members: list[ReplayedMemberOut] = Field(description="Largest change first.")


def find_question(request: HttpRequest, question_id: UUID) -> Replay:
    rows = Replay.objects.of(caller_of(request).team).filter(run__binned_at=None, pk=question_id)
    rows.lose()
    replay = rows.select_related("team").first()
    if replay is None:
        raise Http404
    return replay


def serialize_question(replay: Replay) -> dict[str, Any]:
    names = ("step", "group", "base", "methods", "weights", "status", "error", "problems", "created_at", "finished_at")
    result = replay.result if replay.readable and replay.result else {}
    url = build_absolute_url(team_path(replay.team, "replay", replay.pk))
    fields = {name: getattr(replay, name) for name in names}
    return {**fields, "id": replay.pk, "run": replay.run_id, "url": url, "summary": result.get("summary"), "members": result.get("members", [])}


@router.post(
    "/runs/{uuid:run_id}/what-if", auth=require_permission("runs.replay"), response={201: QuestionOut, 200: QuestionOut}, summary="Replay a step"
)
def ask_what_if(request: HttpRequest, run_id: UUID, given: QuestionIn, key: Key) -> object:
    """Queues the question for a worker; read it until it is finished. For runs of the trainer grpo."""
    caller, run = caller_of(request), find_team_run(request, run_id)
    base = given.base.model_dump() if given.base else None
    methods = None if given.methods is None else [method.model_dump() for method in given.methods]
    replay, problems = prepare_question(run, load_catalog(), given.step, given.group, base, methods, given.weights)
    if replay is None:
        raise make_validation_problem(FieldProblem(field=one.field or "the body", message=one.message, fix=one.fix) for one in problems)

    def act() -> list[Any]:
        replay.user = caller.user
        replay.save(force_insert=True)
        enqueue_replay(replay)
        return [replay.pk]

    [made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_question(find_question(request, UUID(str(made)))))


@router.get("/what-if/{uuid:question_id}", auth=require_permission("runs.read"), response=QuestionOut, summary="The answer of a replay")
def get_what_if(request: HttpRequest, question_id: UUID) -> object:
    """How far it is, or what the advantages would have been."""
    return serialize_question(find_question(request, question_id))
