"""Branches at a token: how likely other tokens were, continuations from there, their rewards, and pairs of them for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db.models import Q
from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.rollouts import Turn
from lab.edges.api.operations.runs import find_team_run
from lab.edges.api.problems import ApiProblem, make_validation_problem
from lab.edges.api.queue_bodies import of_form
from lab.lib.numbers import MAX_ID, MAX_INTEGER
from lab.models.branches import requests
from lab.models.branches.display import build_alternatives_state, load_group_rewards, select_branches, serialize_continuation
from lab.models.branches.models import Branch, TokenAlternatives
from lab.models.branches.offered import choose_nearest_before, list_offered_checkpoints
from lab.models.branches.pairs import PairForm
from lab.models.branches.places import MOST_NEW, find_stored_place, read_temperature
from lab.models.branches.requests import MOST_COUNT, AlternativesForm, BranchForm
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.addresses import build_absolute_url, team_path

router = make_router("Rollouts")
LISTED = 200


class AlternativesIn(RequestBody):
    token: int = Field(ge=0, le=MAX_INTEGER, description="Index of a token that the policy wrote, counted from 0.")
    checkpoint: int | None = Field(None, ge=1, le=MAX_ID, description="Id of a policy of the run; null: the nearest at or before the rollout.")


class AlternativeOut(Schema):
    id: int
    text: str
    probability: float
    end: bool = Field(description="Whether it ends the completion.")


class TokenAlternativesOut(Schema):
    id: UUID
    status: str = Field(description="queued, running, finished, failed or stopped.")
    error: str
    entropy: float | None = Field(description="At the token, nats, under the checkpoint.")
    own: AlternativeOut | None = Field(description="The token that was sampled.")
    tokens: list[AlternativeOut] = Field(description="Likeliest first.")


class BranchIn(AlternativesIn):
    choice: Literal["token", "keep", "policy"] = Field(
        "policy", description="token: `alternative` stands there; keep: the sampled one; policy: the policy chooses."
    )
    alternative: int | None = Field(None, ge=0, le=MAX_INTEGER, description="Token id, for the choice token.")
    count: int = Field(4, ge=1, le=MOST_COUNT, description="Continuations.")
    temperature: float | None = Field(None, ge=0, le=5, description="0 is greedy; null: the run's.")
    max_tokens: int | None = Field(None, ge=1, le=MOST_NEW, description="New tokens; null: what the run's limit leaves.")
    seed: int = Field(0, ge=0, le=MAX_INTEGER, description="The same seed gives the same continuations.")


class ContinuationOut(Schema):
    number: int
    text: str = Field(description="The whole completion, its kept beginning included.")
    tokens: int
    kept: int = Field(description="Tokens that it begins with.")
    finish_reason: str = Field(description="stop, length or turns; empty while it is written.")
    reward: float | None = Field(description="Weighted sum of the run's reward functions; methods that shape rewards are not applied.")
    rewards: dict[str, float | None]
    against: float | None = Field(description="Reward less the mean of the rollout's group.")
    problem: str = Field(description="Why a reward function failed on it.")
    rollout: int | None = Field(description="The stored rollout that it became when it went to a queue.")
    turns: list[Turn]
    ids: list[int]
    logprobs: list[float | None] = Field(description="Of each token, nats, under the checkpoint.")
    entropies: list[float | None] = Field(description="At each token, nats, under the checkpoint.")


class BranchOut(Schema):
    id: UUID
    url: str
    rollout: int
    token: int
    choice: str
    alternative: int | None = Field(description="Id of the token that stands there; null where the policy chooses.")
    alternative_text: str
    sampled_text: str
    policy: int | None = Field(description="Id of the checkpoint; null once it is deleted.")
    label: str
    behind: int = Field(description="Updates from the checkpoint to the policy that sampled the rollout; negative: trained further since.")
    count: int
    temperature: float
    max_tokens: int
    seed: int
    status: str = Field(description="queued, running, finished, failed or stopped.")
    error: str
    note: str
    entropy: float | None = Field(description="At the token, nats, under the checkpoint.")
    logprob: float | None = Field(description="Of the token that stands there, nats, under the checkpoint.")
    created_at: datetime
    finished_at: datetime | None
    continuations: list[ContinuationOut]


class PairsIn(RequestBody):
    against: Literal["original", "each"] = Field("original", description="Each continuation against the original completion, or against each other.")
    numbers: list[int] = Field([], max_length=MOST_COUNT, description="Of continuations; empty: all.")
    queue: int | None = Field(None, ge=1, le=MAX_ID, description="An open queue of pairs; null: a new one.")
    name: str = Field("", max_length=100, description="Of the new queue.")


class PairsOut(Schema):
    queue: int
    added: int = Field(description="Pairs that the queue did not have.")


def find_branching_rollout(request: HttpRequest, rollout_id: int) -> Rollout:
    rows = Rollout.objects.of(caller_of(request).team).select_related("run__team", "prompt")
    rollout: Rollout = one_of(rows, rollout_id)
    return rollout


def choose_checkpoint(rollout: Rollout, checkpoint: int | None) -> int:
    """Raises ApiProblem where the run has none."""
    nearest = choose_nearest_before(list_offered_checkpoints(rollout))
    if nearest is None:
        raise ApiProblem("conflict", "No checkpoint of this run is on disk: there is nothing to sample from.")
    return checkpoint if checkpoint is not None else nearest.checkpoint.pk


def serialize_branch(branch: Branch) -> dict[str, Any]:
    names = ("id", "choice", "label", "behind", "count", "temperature", "max_tokens", "seed", "status", "error", "note", "entropy", "logprob")
    rewards = load_group_rewards(branch.rollout)
    written = []
    for one in branch.continuations.all():
        measured = {"ids": [], "logprobs": [], "entropies": [], **serialize_continuation(branch, one, rewards)}
        turns = [{"role": role, "start": start, "end": end} for role, start, end in one.turns]
        written.append({**measured, "text": one.text, "turns": turns})
    return {
        **{name: getattr(branch, name) for name in (*names, "created_at", "finished_at", "sampled_text")},
        "url": build_absolute_url(team_path(branch.team, "branch", branch.pk)),
        "rollout": branch.rollout_id,
        "token": branch.place,
        "alternative": branch.chosen,
        "alternative_text": branch.chosen_text,
        "policy": branch.checkpoint_id,
        "continuations": written,
    }


def find_team_branch(request: HttpRequest, branch_id: UUID) -> Branch:
    team = caller_of(request).team
    Branch.objects.of(team).filter(pk=branch_id).lose()
    branch = select_branches(team, Q(pk=branch_id)).select_related("team", "rollout__run", "rollout__prompt", "checkpoint").first()
    if branch is None:
        raise Http404
    return branch


@router.post(
    "/rollouts/{int:rollout_id}/alternatives", auth=require_permission("policies.use"), response=TokenAlternativesOut, summary="Ask for alternatives"
)
def ask_token_alternatives(request: HttpRequest, rollout_id: int, given: AlternativesIn) -> object:
    """Queues the question how likely which tokens were at a place; an answer of the last hour is given again. Read it until it is finished."""
    rollout = find_branching_rollout(request, rollout_id)
    form = AlternativesForm(rollout, {"token": given.token, "checkpoint": choose_checkpoint(rollout, given.checkpoint)})
    if not form.is_valid():
        raise make_validation_problem(of_form(form))
    return build_alternatives_state(form.ask(caller_of(request).user))


@router.get(
    "/alternatives/{uuid:alternatives_id}", auth=require_permission("policies.read"), response=TokenAlternativesOut, summary="Alternatives at a token"
)
def get_token_alternatives(request: HttpRequest, alternatives_id: UUID) -> object:
    rows = TokenAlternatives.objects.of(caller_of(request).team).filter(pk=alternatives_id)
    rows.lose()
    asked = rows.first()
    if asked is None:
        raise Http404
    return build_alternatives_state(asked)


@router.post(
    "/rollouts/{int:rollout_id}/branches",
    auth=require_permission("policies.use"),
    response={201: BranchOut, 200: BranchOut},
    summary="Branch at a token",
)
def start_branch(request: HttpRequest, rollout_id: int, given: BranchIn, key: Key) -> object:
    """Queues continuations from a checkpoint that begin with exactly the stored token ids before `token`; read the branch until it is finished."""
    caller, rollout = caller_of(request), find_branching_rollout(request, rollout_id)
    data = given.model_dump(exclude_none=True) | {"checkpoint": choose_checkpoint(rollout, given.checkpoint)}
    data.setdefault("temperature", read_temperature(rollout))
    if given.max_tokens is None:
        data["max_tokens"] = find_stored_place(rollout, given.token).left
    form = BranchForm(rollout, data)
    if not form.is_valid():
        raise make_validation_problem(of_form(form))
    [made], fresh = run_idempotent_action(request, caller, key, lambda: [form.ask(caller.user).pk])
    return Status(201 if fresh else 200, serialize_branch(find_team_branch(request, UUID(str(made)))))


@router.get(
    "/rollouts/{int:rollout_id}/branches", auth=require_permission("policies.read"), response=list[BranchOut], summary="Branches of a rollout"
)
def list_branches_of_rollout(request: HttpRequest, rollout_id: int) -> object:
    """The newest 200."""
    rollout = find_branching_rollout(request, rollout_id)
    return [serialize_branch(branch) for branch in select_branches(rollout.run.team, Q(rollout=rollout))[:LISTED]]


@router.get("/runs/{uuid:run_id}/branches", auth=require_permission("policies.read"), response=list[BranchOut], summary="Branches of a group")
def list_branches_of_group(
    request: HttpRequest,
    run_id: UUID,
    step: int = Query(ge=0, le=MAX_INTEGER),
    group: int = Query(ge=0, le=MAX_INTEGER),
    phase: Literal["train", "heldout", "sampled", "play"] = Query("train", description="What the rollouts were sampled for."),
) -> object:
    """The newest 200. They are no members of the group: no statistic of the run counts them."""
    run = find_team_run(request, run_id)
    condition = Q(rollout__run=run, rollout__step=step, rollout__group=group, rollout__phase=phase)
    return [serialize_branch(branch) for branch in select_branches(caller_of(request).team, condition)[:LISTED]]


@router.get("/branches/{uuid:branch_id}", auth=require_permission("policies.read"), response=BranchOut, summary="One branch")
def get_branch(request: HttpRequest, branch_id: UUID) -> object:
    """Continuations appear as they are written, their rewards once all are."""
    return serialize_branch(find_team_branch(request, branch_id))


@router.post("/branches/{uuid:branch_id}/stop", auth=require_permission("policies.use"), response=BranchOut, summary="Stop a branch")
def stop_branch(request: HttpRequest, branch_id: UUID) -> object:
    """Continuations so far are kept; one that has ended stays as it is."""
    branch = find_team_branch(request, branch_id)
    requests.stop_branch(branch)
    return serialize_branch(branch)


@router.delete("/branches/{uuid:branch_id}", auth=require_permission("policies.use"), response={204: None}, summary="Delete a branch")
def delete_branch(request: HttpRequest, branch_id: UUID) -> object:
    """Refused while continuations stand in labelling queues, which datasets name as where their rows come from."""
    requests.delete_branch(find_team_branch(request, branch_id))
    return Status(204, None)


@router.post("/branches/{uuid:branch_id}/queue", auth=require_permission("label.lead"), response=PairsOut, summary="Label continuations as pairs")
def queue_pairs(request: HttpRequest, branch_id: UUID, given: PairsIn) -> object:
    """Puts pairs into an open queue of pairs, or into a new one; pairs that the queue has are left out."""
    user = caller_of(request).person("a queue needs a responsible person")
    form = PairForm(find_team_branch(request, branch_id), given.model_dump(exclude_none=True))
    if not form.is_valid():
        raise make_validation_problem(of_form(form))
    queue, added = form.add(user)
    return {"queue": queue.pk, "added": added}
