"""A sampling as the page draws it: per side what is known, per sample the units of text with what was measured on their tokens."""

from __future__ import annotations

from typing import Any

from lab.models.playground.models import Sample, Sampling, Side, WrittenCompletion
from lab.rollouts.trajectories.tokens import arrays_of, build_token_units, round_for_json
from trainers.contract.arrays import PackError


def build_sampling_state(sampling: Sampling) -> dict[str, Any]:
    """{"status", "open", "error", "sides": [{"device", "samples": [...]}]}; what a page holds and a socket sends."""
    sides = sampling.sides.prefetch_related("samples")
    return {
        "type": "sampling",
        "status": sampling.status,
        "open": sampling.is_open,
        "error": sampling.error,
        "queue": sampling.queue_id,
        "sides": [{"device": side.device, "samples": [serialize_sample(side, sample) for sample in side.samples.all()]} for side in sides],
    }


def serialize_sample(side: Side, sample: Sample) -> dict[str, Any]:
    return serialize_written(sample, side.special_tokens)


def serialize_written(sample: WrittenCompletion, special: dict[str, str], turns: list[list[Any]] | None = None) -> dict[str, Any]:
    """As ``lab.rollouts.trajectories.tokens.build_tokens_json`` has it, for the same script."""
    about = {"number": sample.number, "tokens": sample.tokens, "finish_reason": sample.finish_reason}
    try:
        arrays = arrays_of(SampleArrays(sample))  # type: ignore[arg-type]
    except PackError as error:
        return {**about, "error": f"the tokens cannot be read: {error}"}
    return {
        **about,
        "total": sample.tokens,
        "shown": sample.tokens,
        "units": build_token_units(sample.text, arrays, special, turns or []),
        "ids": arrays.ids.tolist(),
        "logprobs": round_for_json(arrays.logprobs),
        "entropies": round_for_json(arrays.entropies),
        "mask": arrays.mask.astype(int).tolist(),
    }


class SampleArrays:
    """A sample with the arrays that only training measures, empty."""

    token_advantages = weights = reference_logprobs = ratios = clipped = sampler_logprobs = b""

    def __init__(self, sample: WrittenCompletion) -> None:
        self.ids, self.lengths, self.logprobs, self.entropies = sample.ids, sample.lengths, sample.logprobs, sample.entropies
        self.mask = getattr(sample, "mask", b"")  # of completions with turns of an environment
