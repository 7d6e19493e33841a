"""Prefixes with a known chance of success and noisy labels of it: what a value head is fitted to in training, without a policy.

A prefix is a random state whose chance of success is a fixed smooth function of it, different for each seed; its label is one draw, 1 or 0, as the
outcome of one completion is. Labels come in batches, and the head is fitted to each batch once, as in a run.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from trainers.maths.value_histogram import ValueLoss, choose_value_bins, measure_calibration_error
from trainers.methods.value_head import ValueHead

SIZE, BATCH, BATCHES = 32, 256, 40
RATE, PASSES = 3e-3, 20  # of the method
HELD_OUT = 4096


class Prefixes:
    """States and their chances of success, drawn with a generator of their own."""

    def __init__(self, seed: int) -> None:
        self.draws = torch.Generator().manual_seed(1000 + seed)
        self.directions = torch.randn(3, SIZE, generator=self.draws) / SIZE**0.5

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """(count, SIZE) states, (count,) chances."""
        states = torch.randn(count, SIZE, generator=self.draws)
        one, two, three = (states @ self.directions.T).T
        return states, torch.sigmoid(2 * one + 2 * torch.tanh(2 * two) * three)


def fit_noisy_labels(seed: int, loss: ValueLoss) -> dict[str, float]:
    """On prefixes it has not seen: calibration error, and the mean distance of values to the true chances."""
    text: Any = SimpleNamespace(hidden_size=SIZE)
    run: Any = SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: text)), seed=seed, device=torch.device("cpu"))
    head = ValueHead(run, RATE, PASSES, choose_value_bins(loss, 0.0, 1.0))
    prefixes = Prefixes(seed)
    for _ in range(BATCHES):
        states, chances = prefixes.draw(BATCH)
        head.fit(states, torch.bernoulli(chances, generator=prefixes.draws))
    states, chances = prefixes.draw(HELD_OUT)
    values = head.estimate(states)
    return {"calibration": measure_calibration_error(values, chances, 0.0, 1.0), "distance": float((values - chances).abs().mean())}
