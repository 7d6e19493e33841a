"""Rollouts: pages and files of a selection with the browser's filters, one rollout, its tokens, the groups of a step, prompts."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils import timezone
from ninja import Field, Schema

from lab.edges.api.base import Query, caller_of, make_router, one_of, require_permission
from lab.edges.api.operations.runs import find_team_run
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import ApiProblem, FieldProblem, make_validation_problem
from lab.lib.costly import under_way, while_sent
from lab.lib.downloads import stream_attachment
from lab.lib.numbers import MAX_INTEGER
from lab.rollouts.browse import pages, records
from lab.rollouts.browse.exports import MOST, MOST_WITH_TOKENS, write_jsonl_batches
from lab.rollouts.browse.selection import Selection
from lab.rollouts.reading import history
from lab.rollouts.trajectories.models import Prompt, Rollout, RolloutTokens
from lab.rollouts.trajectories.steps import list_rollout_steps
from lab.rollouts.trajectories.tokens import build_tokens_json
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Run
from trainers.contract.problems import Problem

router = make_router("Rollouts")
Phase = Literal["train", "heldout", "sampled"]
FILTER = "A filter as in the browser's URL: `<field>:<operator>:<value>`, such as `reward:ge:0.5`, `finish:is:length` or `tag:has:loop`."
BIOGRAPHY = ("phase", "state", "solved_at", "unlearned_at", "visits")
JSONL = {"responses": {200: {"description": "One rollout per line.", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}}


class MessageOut(Schema):
    role: str
    content: str


class Turn(Schema):
    role: str
    start: int = Field(description="First token.")
    end: int


class RolloutOut(Schema):
    id: int
    run: int = Field(description="Number of the run.")
    run_name: str
    phase: str
    step: int
    group: int = Field(description="Index of the prompt within the step.")
    sample: int = Field(description="Index of the answer within the group.")
    attempt: int
    prompt: list[MessageOut]
    reference: str
    completion: str
    turns: list[Turn]
    nodes: list[dict[str, Any]] = Field(description="The tree of turns it is a path of, what was cut or asked beside it included; empty for most.")
    turn_labels: list[dict[str, Any]] = Field(
        description="Labels on its turns: `node` with `verdict` (good or bad), or with `preferred_to` (the node of another branch of the same state)."
    )
    reward: float | None
    rewards: dict[str, Any] = Field(description="Value of each reward function.")
    advantage: float | None
    contributions: dict[str, Any] = Field(description="The advantage after each method; `base` is before all of them.")
    shaped: dict[str, Any] = Field(description="The reward after each method.")
    length: int | None = Field(description="Tokens of the completion; null: not recorded.")
    mean_entropy: float | None
    max_entropy: float | None
    finish_reason: str
    filtered: str = Field(description="Why it was dropped; empty if it was not.")
    superseded: bool = Field(description="A resumed attempt repeated its step.")
    tags: list[str]
    rating: float | None
    ratings: int
    comments: int
    created_at: datetime


class Unit(Schema):
    """A span of text and its tokens."""

    text: str
    first: int
    count: int
    special: bool
    environment: bool = Field(description="Written by the task's environment, not by the policy.")


class AlternativesOut(Schema):
    """The k most likely tokens at each token, most likely first."""

    k: int
    ids: list[list[int]]
    logprobs: list[list[float | None]] = Field(description="At the sampling temperature, nats; null where not known.")
    ranks: list[int] = Field(description="Place of the sampled token by probability; 1 is the most likely, 0 not known.")
    texts: dict[str, str] = Field(description="Text of each id.")


class TokensOut(Schema):
    """Arrays have one value per token; null if the run stored none."""

    id: int
    total: int
    units: list[Unit]
    ids: list[int]
    logprobs: list[float | None]
    entropies: list[float | None]
    mask: list[int] = Field(description="1 where the token is in the loss.")
    advantages: list[float | None] | None
    weights: list[float | None] | None
    reference: list[float | None] | None = Field(description="Log-probabilities of the reference policy.")
    ratios: list[float | None] | None
    clipped: list[float | None] | None
    sampler: list[float | None] | None = Field(description="Log-probabilities reported by the sampler.")
    alternatives: AlternativesOut | None = Field(description="null if none were recorded for this rollout.")


class MemberOut(Schema):
    id: int
    sample: int
    reward: float | None
    advantage: float | None
    length: int | None
    filtered: str


class GroupOut(Schema):
    group: int
    prompt: int = Field(description="Id of the prompt.")
    mean: float | None = Field(description="Mean reward.")
    members: list[MemberOut]


class PromptHead(Schema):
    id: int
    text: str = Field(description="The last user message.")
    reference: str


class VisitOut(Schema):
    """All answers to the prompt at one step."""

    step: int
    group: int
    count: int
    passed: float = Field(description="Share of answers that passed.")
    mean: float | None
    low: float | None
    high: float | None
    entropy: float | None
    length: float | None


class BiographyOut(Schema):
    run: UUID
    phase: str
    state: str = Field(description="solved, unlearned or never: the last change that the next visit confirmed.")
    solved_at: int | None = Field(description="Step at which it was first solved.")
    unlearned_at: int | None = Field(description="Step at which it was last unlearned, if it has not been solved again.")
    visits: list[VisitOut]


class PromptOut(PromptHead):
    messages: list[MessageOut]
    series: list[BiographyOut] = Field(description="Its history over the steps of each run.")


def selection_of(request: HttpRequest) -> Selection:
    """Raises ApiProblem for what the address asks and cannot have: a program is told, a page shows the rest."""
    selection = Selection.read(request.GET)
    if selection.problems:
        raise make_selection_problem(selection.problems)
    return selection


def make_selection_problem(problems: Iterable[Problem]) -> ApiProblem:
    places = {"run", "q", "re", "sort", "f"}
    return make_validation_problem(
        FieldProblem(field=problem.field if problem.field in places else "f", message=problem.message, fix=problem.fix) for problem in problems
    )


@router.get("/rollouts", auth=require_permission("runs.read"), response=Page[RolloutOut], summary="List rollouts")
def list_rollouts(
    request: HttpRequest,
    after: After,
    limit: Limit,
    run: list[int] = Query([], description="Run numbers; default: all runs of the team.", examples=[[2]]),
    f: list[str] = Query([], description=FILTER, examples=[["reward:ge:0.5"]]),
    q: str = Query("", description="Words in the completion."),
    re: str = Query("", description="A regular expression over completions; at its time limit a page ends early, and `next` continues from there."),
    sort: str = Query("", description="A field, with - for descending order; default: newest first.", examples=["-reward"]),
    tries: Literal["0", "1"] = Query("0", description="1: include steps that a resumed attempt repeated."),
) -> object:
    """The same selection as in the rollout browser with the same URL parameters."""
    team = caller_of(request).team
    selection = selection_of(request)
    with under_way(request) if selection.pattern else nullcontext():
        page = pages.read_page(team, selection, limit)
    if page.problems:
        raise make_selection_problem(page.problems)
    runs = {run.pk: run for run in (row.run for row in page.rows)}
    items = [
        record for batch in records.build_export_batches(pages.fetch_whole_rollouts([row.pk for row in page.rows], runs), False) for record in batch
    ]
    examined = page.examined.cursor if page.examined and page.examined.timed_out else ""
    return {"items": items, "next": page.next or examined or None}


@router.get(
    "/rollouts/export", auth=require_permission("rollouts.export"), openapi_extra=JSONL, response={200: None}, summary="Export rollouts as JSON lines"
)
def export_rollouts(
    request: HttpRequest,
    run: list[int] = Query([], description="Run numbers; default: all runs of the team.", examples=[[2]]),
    f: list[str] = Query([], description=FILTER),
    q: str = Query("", description="Words in the completion."),
    sort: str = Query("", description="As in the list."),
    tries: Literal["0", "1"] = Query("0", description="1: include steps that a resumed attempt repeated."),
    tokens: bool = Query(False, description="Include the arrays over tokens."),
) -> HttpResponseBase:
    """Streamed, one rollout per line, up to 200,000 (20,000 with tokens). Recorded in the audit log."""
    team, selection = caller_of(request).team, selection_of(request)
    if selection.pattern:
        raise make_validation_problem([FieldProblem(field="re", message="is not supported for exports", fix="use q, or filter the lines yourself")])
    label = ", ".join(f"#{number}" for number in selection.runs)
    record_audit_entry("rollouts.export", team=team, label=label, format="jsonl", tokens=tokens, selection=selection.query()[:500])
    rows = pages.stream_rollouts(team, selection, limit=MOST_WITH_TOKENS if tokens else MOST)
    name = f"rollouts-{timezone.now():%Y%m%d-%H%M%S}.jsonl"
    return while_sent(
        request,
        lambda: stream_attachment(request, write_jsonl_batches(records.build_export_batches(rows, tokens), (), tokens), name, "application/x-ndjson"),
    )


def find_team_rollout(request: HttpRequest, rollout_id: int) -> Rollout:
    """The team's rollout with its run and prompt. Raises Http404."""
    rollout: Rollout = one_of(Rollout.objects.of(caller_of(request).team).select_related("run", "prompt"), rollout_id)
    return rollout


@router.get("/rollouts/{int:rollout_id}", auth=require_permission("runs.read"), response=RolloutOut, summary="One rollout")
def get_rollout(request: HttpRequest, rollout_id: int) -> object:
    [[record]] = records.build_export_batches([find_team_rollout(request, rollout_id)], False)
    return record


@router.get("/rollouts/{int:rollout_id}/tokens", auth=require_permission("runs.read"), response=TokensOut, summary="Tokens of a rollout")
def get_tokens(request: HttpRequest, rollout_id: int) -> object:
    """Measurements of each token."""
    rollout = find_team_rollout(request, rollout_id)
    packed = RolloutTokens.objects.filter(rollout=rollout).first()
    if packed is None:
        raise Http404("This rollout was stored without tokens.")
    tokens = build_tokens_json(rollout, packed, rollout.run.special_tokens, everything=True)
    if "error" in tokens:
        raise Http404(tokens["error"])
    optional = dict.fromkeys(("advantages", "weights", "reference", "ratios", "clipped", "sampler"))
    if alternatives := tokens["alternatives"]:
        k = alternatives["k"]
        alternatives |= {name: [alternatives[name][at : at + k] for at in range(0, tokens["total"] * k, k)] for name in ("ids", "logprobs")}
    return {**optional, **tokens, "units": [serialize_token_unit(*unit) for unit in tokens["units"]]}


def serialize_token_unit(text: str, first: int, count: int, flags: int) -> dict[str, Any]:
    return {"text": text, "first": first, "count": count, "special": bool(flags & 1), "environment": bool(flags & 2)}


@router.get("/runs/{uuid:run_id}/steps", auth=require_permission("runs.read"), response=list[int], summary="Steps with rollouts")
def list_steps(request: HttpRequest, run_id: UUID, phase: Phase = Query("train", description="What the rollouts were sampled for.")) -> object:
    """Ascending; empty for runs with more than 2,000 such steps."""
    return list_rollout_steps(find_team_run(request, run_id), phase, False)


@router.get("/runs/{uuid:run_id}/groups", auth=require_permission("runs.read"), response=list[GroupOut], summary="Groups of a step")
def list_groups(
    request: HttpRequest,
    run_id: UUID,
    step: int = Query(..., ge=0, le=MAX_INTEGER, examples=[10]),
    phase: Phase = Query("train", description="What the rollouts were sampled for."),
) -> object:
    """Answers to the same prompt, with their rewards and advantages."""
    run = find_team_run(request, run_id)
    rows = Rollout.objects.filter(run=run, phase=phase, step=step, superseded=False).order_by("group", "sample").defer("completion", "turns", "nodes")
    groups: dict[int, list[Rollout]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [serialize_rollout_group(number, members) for number, members in groups.items()]


def serialize_rollout_group(number: int, members: list[Rollout]) -> dict[str, Any]:
    rewards = [row.reward for row in members if row.reward is not None]
    mean = sum(rewards) / len(rewards) if rewards else None
    return {"group": number, "prompt": members[0].prompt_id, "mean": mean, "members": members}


@router.get("/prompts", auth=require_permission("runs.read"), response=Page[PromptHead], summary="List prompts")
def list_prompts(
    request: HttpRequest, after: After, limit: Limit, q: str = Query("", max_length=200, description="Text that the prompt contains.")
) -> object:
    """Newest first."""
    words = Q(text__icontains=q) if q else Q()
    rows = Prompt.objects.filter(words, team=caller_of(request).team, pk__lt=parse_after_id(after)).order_by("-pk")[: limit + 1]
    with under_way(request) if q else nullcontext():
        return paginate_rows(list(rows), limit, lambda row: row.pk)


@router.get("/prompts/{int:prompt_id}", auth=require_permission("runs.read"), response=PromptOut, summary="One prompt with its history")
def get_prompt(request: HttpRequest, prompt_id: int) -> object:
    """Its history over the steps of every run that sampled it."""
    team = caller_of(request).team
    prompt = one_of(Prompt.objects.filter(team=team), prompt_id)
    runs = {run.pk: run for run in Run.objects.of(team).filter(pk__in=Rollout.objects.filter(prompt=prompt).values("run"))}
    series = history.of_prompt(prompt.pk, runs) if runs else []
    messages = [{"role": str(role), "content": str(content)} for role, content in prompt.messages]
    biographies = [{**{name: getattr(biography, name) for name in BIOGRAPHY}, "run": biography.run.pk} for biography in series]
    return {"id": prompt.pk, "text": prompt.text, "reference": prompt.reference, "messages": messages, "series": biographies}


@router.get("/prompts/{int:prompt_id}/rollouts", auth=require_permission("runs.read"), response=Page[RolloutOut], summary="Answers to a prompt")
def list_answers(request: HttpRequest, prompt_id: int, after: After, limit: Limit) -> object:
    """From all runs, newest first."""
    prompt = one_of(Prompt.objects.filter(team=caller_of(request).team), prompt_id)
    rows = list(
        Rollout.objects.filter(prompt=prompt, pk__lt=parse_after_id(after)).current().select_related("run", "prompt").order_by("-pk")[: limit + 1]
    )
    kept = paginate_rows(rows, limit, lambda row: row.pk)
    return {**kept, "items": [record for batch in records.build_export_batches(kept["items"], False) for record in batch]}
