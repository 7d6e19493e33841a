"""Sampling with a vector of each completion's own added to its logits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.policies.sampling import Completion, Sampler, Sampling, TokenStatistics
from trainers.tasks.base import Task


class BiasedStatistics(TokenStatistics):
    """Adds the biases to the logits before they are watched, so that log-probabilities and entropies are those of what is sampled from."""

    def __init__(self, temperature: float, biases: Sequence[Tensor | None]) -> None:
        super().__init__(temperature)
        self.biases = biases

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        zero = scores.new_zeros(scores.shape[1])
        biased = scores + torch.stack([zero if bias is None else bias.to(scores) for bias in self.biases])  # (B, V)
        return super().__call__(input_ids, biased)


class BiasedSampler(Sampler):
    """Samples turns. ``biases``: of each completion of a call, (V,) or None for nothing."""

    def __init__(self, model: Any, tokenizer: Any, task: Task, how: Sampling, biases: Sequence[Tensor | None]) -> None:
        super().__init__(model, tokenizer, task, how)
        self.biases = biases

    def make_statistics(self, made: list[Completion]) -> TokenStatistics:
        return BiasedStatistics(self.how.temperature, self.biases)
