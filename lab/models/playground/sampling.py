"""Sampling in a worker: the trainers' command, a process of its own, writes one side after the other, and this what it writes into the database."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from uuid import UUID

from lab.lib.child_environment import SAMPLER
from lab.lib.kept_process import Conversation, IdleProcess, KeptProcess, StartError
from lab.models.playground.models import SECONDS, Sample, SamplerQuestion, Sampling, Side
from lab.models.policies.checkpoint_paths import FilesMissing, open_checkpoint
from lab.training.runs.publisher import publish_message
from trainers.contract import arrays

SHOWN_ERROR = 300
Question = TypeVar("Question", bound=SamplerQuestion)


class SamplingError(RuntimeError):
    """The command came to no end; the message is one readable line."""


def group_of(sampling_id: UUID) -> str:
    """The channel group that hears of a question to a checkpoint, by its id."""
    return f"sampling-{sampling_id}"


def run_sampling(sampling_id: str) -> None:
    sampling = Sampling.across_teams.filter(pk=sampling_id).first()
    if sampling is not None:
        answer_sampler_question(sampling, idle_sampler, write_sampling)


def answer_sampler_question(question: Question, idle: IdleProcess, write: Callable[[Question, Conversation], bool]) -> None:
    """Claims the question and answers it in a process of ``idle``. ``write`` stores the answer: False when somebody stopped it meanwhile."""
    if not question.claim():
        return
    publish_sampling_update(question)
    try:
        with Conversation(idle, SECONDS) as sampler:
            if write(question, sampler):
                question.finish()
    except StartError as error:
        question.fail(f"Sampling {error}.")
    except SamplingError as error:
        question.fail(str(error))
    except Exception as error:  # nobody waits for ever for an answer that will not come
        question.fail(f"Sampling failed: {type(error).__name__}.")
        raise
    finally:
        publish_sampling_update(question)


def publish_sampling_update(question: SamplerQuestion) -> None:
    """Wakes the open pages; what there is to see is in the database."""
    publish_message(group_of(question.pk), {"type": "sampled"})


def write_sampling(sampling: Sampling, sampler: Conversation) -> bool:
    """Whether all sides are written to their end, by one process. Raises SamplingError."""
    return all(write_side_samples(sampling, side, sampler) for side in sampling.sides.select_related("checkpoint", "vector"))


def write_side_samples(sampling: Sampling, side: Side, sampler: Conversation) -> bool:
    """Whether the side is written to its end; False when the sampling was stopped. Raises SamplingError."""
    for line in stream_answer(sampler, encode_sampling_request(sampling, side)):
        if not sampling.beats():
            return False
        if line["event"] == "loaded":
            Side.objects.same_row(side).update(special_tokens=line["special"], device=str(line["device"])[:50])
        elif line["event"] == "written":
            for number, completion in enumerate(line["completions"]):
                Sample.objects.update_or_create(side=side, number=number, defaults=pack_completion(completion))
        else:
            continue  # a heartbeat
        publish_sampling_update(sampling)
    return True


def encode_sampling_request(sampling: Sampling, side: Side) -> bytes:
    if side.checkpoint is None:
        raise SamplingError(f"The files of {side.label} are no longer on disk.")
    try:
        folder = open_checkpoint(side.checkpoint)
        steering = str(open_checkpoint(side.vector)) if side.vector is not None else ""
    except FilesMissing as error:
        raise SamplingError(str(error)) from None
    if side.alpha and not steering:
        raise SamplingError("The run that made the steering vector was deleted.")
    names = ("prompt", "count", "temperature", "top_p", "max_tokens", "seed")
    added = {"steering": steering, "alpha": side.alpha} if steering else {}
    return json.dumps({"folder": str(folder), **{name: getattr(sampling, name) for name in names}, **added}).encode()


def pack_completion(completion: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": completion["text"],
        "finish_reason": completion["finish_reason"],
        "tokens": len(completion["ids"]),
        "ids": arrays.pack_ids(completion["ids"]),
        "lengths": arrays.pack_array(completion["lengths"], "H"),
        "logprobs": arrays.pack_array(completion["logprobs"], "e"),
        "entropies": arrays.pack_array(completion["entropies"], "e"),
    }


def start_sampler_process() -> KeptProcess:
    return KeptProcess([sys.executable, "-m", "trainers", "sample"], SAMPLER)


idle_sampler = IdleProcess(start_sampler_process)


def stream_answer(sampler: Conversation, request: bytes) -> Iterator[dict[str, Any]]:
    """The lines of the answer to one request as they come, without the last, which says that it is whole. Raises SamplingError."""
    try:
        sampler.ask(request)
        while text := sampler.read_line():
            line = json.loads(text)
            if line["event"] == "done":
                sampler.answered = True
                return
            yield line
        code = sampler.exit_code()
    except (OSError, ValueError) as error:
        raise SamplingError(f"Sampling was aborted: {sampler.last_words() or error}"[:SHOWN_ERROR]) from None
    if sampler.is_late():
        raise SamplingError(f"Sampling timed out after {SECONDS:.0f} s. Request fewer or shorter completions.")
    raise SamplingError((sampler.last_words() or f"Sampling ended with exit code {code}.")[:SHOWN_ERROR])
