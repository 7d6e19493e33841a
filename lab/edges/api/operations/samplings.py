"""The playground: prompts to policies of the team, answered by a worker, and what was written sent to a labelling queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import RequestBody, caller_of, make_router, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.rollouts import MessageOut
from lab.edges.api.problems import make_validation_problem
from lab.edges.api.queue_bodies import of_form
from lab.lib.numbers import MAX_ID
from lab.models.playground import stored_samples
from lab.models.playground.display import serialize_sample
from lab.models.playground.models import Sample, Sampling, Side
from lab.models.playground.requests import MOST_COUNT, MOST_TOKENS, PROMPT_LENGTH, AskForm
from lab.teams.accounts.addresses import build_absolute_url, team_path
from trainers.contract.steering_file import MOST_ALPHA

router = make_router("Policies")


class SamplingIn(RequestBody):
    first: int | None = Field(None, ge=1, le=MAX_ID, description="Id of a policy; may be left out with a vector, for the policy it was made from.")
    second: int | None = Field(None, ge=1, le=MAX_ID, description="Id of another policy to compare with.")
    vector: int | None = Field(
        None, ge=1, le=MAX_ID, description="Id of the final policy of a run that made a steering vector: it is asked with and without the vector."
    )
    alpha: float = Field(0.0, ge=-MOST_ALPHA, le=MOST_ALPHA, description="How much of the vector is added; 0 adds nothing.")
    system: str = Field("", max_length=PROMPT_LENGTH, description="System message.")
    prompt: str = Field(max_length=PROMPT_LENGTH, examples=["What is 3 + 4?"])
    count: int = Field(1, ge=1, le=MOST_COUNT, description="Samples per policy.")
    temperature: float = Field(1.0, ge=0, le=5, description="0 is greedy decoding.")
    top_p: float = Field(1.0, ge=0.01, le=1)
    max_tokens: int = Field(256, ge=1, le=MOST_TOKENS)
    seed: int = Field(0, ge=0, description="The same seed gives the same completions.")


class SampleOut(Schema):
    number: int
    text: str = Field(description="The completion, as far as it is written.")
    tokens: int
    finish_reason: str = Field(description="stop or length; empty while it is written.")
    rollout: int | None = Field(description="The stored rollout that it became when it went to a queue.")
    logprobs: list[float | None] = Field(description="Of each token, nats.")
    entropies: list[float | None] = Field(description="At each token, nats.")


class SideOut(Schema):
    policy: int | None = Field(description="Id of the policy; null once it is deleted.")
    vector: int | None = Field(description="Id of the policy whose steering vector was added; null without one, or once it is deleted.")
    alpha: float = Field(description="How much of it; 0 without one.")
    label: str
    device: str
    samples: list[SampleOut]


class SamplingOut(Schema):
    id: UUID
    url: str
    status: str = Field(examples=["finished"], description="queued, running, finished, failed or stopped.")
    error: str
    prompt: list[MessageOut]
    count: int
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    queue: int | None = Field(description="The labelling queue that the completions went to.")
    created_at: datetime
    finished_at: datetime | None
    sides: list[SideOut]


class SamplingQueue(Schema):
    queue: int


def find_sampling(request: HttpRequest, sampling_id: UUID) -> Sampling:
    rows = Sampling.objects.of(caller_of(request).team)
    rows.filter(pk=sampling_id).lose()
    sampling = rows.select_related("team").filter(pk=sampling_id).first()
    if sampling is None:
        raise Http404
    return sampling


def serialize_sampling(sampling: Sampling) -> dict[str, Any]:
    names = ("id", "status", "error", "prompt", "count", "temperature", "top_p", "max_tokens", "seed", "created_at", "finished_at")
    sides = [serialize_side(side) for side in sampling.sides.prefetch_related("samples")]
    url = build_absolute_url(team_path(sampling.team, "sampling", sampling.pk))
    return {**{name: getattr(sampling, name) for name in names}, "queue": sampling.queue_id, "url": url, "sides": sides}


def serialize_side(side: Side) -> dict[str, Any]:
    samples = [serialize_completion(side, sample) for sample in side.samples.all()]
    return {
        "policy": side.checkpoint_id,
        "vector": side.vector_id,
        "alpha": side.alpha,
        "label": side.label,
        "device": side.device,
        "samples": samples,
    }


def serialize_completion(side: Side, sample: Sample) -> dict[str, Any]:
    measured = serialize_sample(side, sample)
    own = {name: getattr(sample, name) for name in ("number", "text", "tokens", "finish_reason", "rollout")}
    return {**own, "logprobs": measured.get("logprobs", []), "entropies": measured.get("entropies", [])}


@router.post("/samplings", auth=require_permission("policies.use"), response={201: SamplingOut, 200: SamplingOut}, summary="Sample from policies")
def ask_policies(request: HttpRequest, given: SamplingIn, key: Key) -> object:
    """Queues the prompt for a worker; read the sampling until it is finished."""
    caller = caller_of(request)
    form = AskForm(caller.team, given.model_dump(exclude_none=True))
    if not form.is_valid():
        raise make_validation_problem(of_form(form))
    [made], fresh = run_idempotent_action(request, caller, key, lambda: [form.ask(caller.user).pk])
    return Status(201 if fresh else 200, serialize_sampling(find_sampling(request, UUID(str(made)))))


@router.get("/samplings/{uuid:sampling_id}", auth=require_permission("policies.read"), response=SamplingOut, summary="One sampling")
def get_sampling(request: HttpRequest, sampling_id: UUID) -> object:
    """Completions appear as they are written."""
    return serialize_sampling(find_sampling(request, sampling_id))


@router.post("/samplings/{uuid:sampling_id}/stop", auth=require_permission("policies.use"), response=SamplingOut, summary="Stop a sampling")
def stop_sampling(request: HttpRequest, sampling_id: UUID) -> object:
    """Completions so far are kept; one that has ended stays as it is."""
    sampling = find_sampling(request, sampling_id)
    sampling.stop()
    return serialize_sampling(sampling)


@router.post("/samplings/{uuid:sampling_id}/queue", auth=require_permission("label.lead"), response=SamplingQueue, summary="Label the completions")
def queue_sampling(request: HttpRequest, sampling_id: UUID) -> object:
    """Puts them into a labelling queue of their own; a second request gives the same queue."""
    user = caller_of(request).person("a queue needs a responsible person")
    return {"queue": stored_samples.to_queue(find_sampling(request, sampling_id), user).pk}
