"""What the sampler says of the tokens it chose, beside what the trainer says of them."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor
from transformers import LogitsProcessorList

from trainers.adapters.passes import Arrays
from trainers.policies.watching import SampledLogprobs

DIFFERENCE = "sampling/sampling_logp_difference"  # TRL's name, which it logs with vLLM and its importance correction


@contextmanager
def hear_sampler(model: Any, temperature: float) -> Iterator[list[Tensor]]:
    """Inside the block ``model.generate`` appends the log-probabilities (B, T) of what it sampled, in nats at ``temperature``."""
    heard: list[Tensor] = []
    original = model.generate

    @functools.wraps(original)
    def generate(*args: Any, **kwargs: Any) -> Any:
        watch = SampledLogprobs(temperature)
        ids = original(*args, **kwargs, logits_processor=LogitsProcessorList([watch]))
        heard.append(watch.finish(ids[:, -1]))
        return ids

    model.generate = generate
    try:
        yield heard
    finally:
        del model.generate


class SamplerGap:
    """Mean and largest |trainer - sampler| over the sampled tokens of a generation batch, nats a token, as TRL has them with vLLM."""

    def __init__(self) -> None:
        self.slices: list[Any] = []

    def add(self, arrays: Arrays, metrics: dict[str, list[float]] | None, is_last: bool) -> None:
        """``metrics``: TRL's, which take the batch's numbers once its last slice is there; None where TRL says them itself."""
        if "sampler_logprobs" in arrays:
            self.slices.append(np.abs(arrays["logprobs"] - arrays["sampler_logprobs"]).ravel())
        if not is_last:
            return
        found = np.concatenate(self.slices) if self.slices else np.empty(0)
        self.slices, known = [], found[np.isfinite(found)]
        if metrics is not None and known.size:
            metrics[f"{DIFFERENCE}/mean"].append(float(known.mean()))
            metrics[f"{DIFFERENCE}/max"].append(float(known.max()))
