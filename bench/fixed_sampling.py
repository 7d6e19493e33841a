"""Sampling that depends only on what is asked: the same completions in one process and in several, whatever each of them samples together.

Every row has random numbers of its own, keyed by the step, the tokens that it goes on from and how often they were asked for before in that step.
Groups are whole in each process and their prompts differ (``keep_distinct_prompts``), so that how often is the same everywhere.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin

from trainers.adapters.groups import GroupAdapter


class RowRandomness:
    """Stands in for ``torch.multinomial`` while a policy generates."""

    def __init__(self) -> None:
        self.step = 0
        self.asked: Counter[tuple[int, ...]] = Counter()
        self.rows: list[random.Random] = []

    def begin_batch(self, step: int) -> None:
        self.step = step
        self.asked.clear()

    def begin_rows(self, ids: Tensor, there: Tensor | None) -> None:
        self.rows = []
        for place, row in enumerate(ids.tolist()):
            keep = there[place].tolist() if there is not None else [1] * len(row)
            key = tuple(token for token, kept in zip(row, keep, strict=True) if kept)
            self.asked[key] += 1
            self.rows.append(random.Random(f"{self.step}/{self.asked[key]}/{key}"))

    def draw(self, probabilities: Tensor) -> Tensor:
        """(B, V) -> (B, 1): the token where the sum of probabilities passes the row's number."""
        sums = probabilities.double().cumsum(1)
        numbers = torch.tensor([[row.random()] for row in self.rows], dtype=torch.float64, device=sums.device) * sums[:, -1:]
        return torch.searchsorted(sums, numbers, right=True).clamp(max=sums.shape[1] - 1)


@contextmanager
def fix_sampling() -> Iterator[None]:
    """Inside the block every policy of this process samples so."""
    drawn, multinomial, generate, score = RowRandomness(), torch.multinomial, GenerationMixin.generate, GroupAdapter._generate_and_score_completions

    def generate_fixed(model: Any, inputs: Any = None, *rest: Any, **asked: Any) -> Any:
        ids = asked["input_ids"] if inputs is None else inputs
        drawn.begin_rows(ids, asked.get("attention_mask"))
        torch.multinomial = lambda probabilities, num_samples: drawn.draw(probabilities)
        try:
            return generate(model, inputs, *rest, **asked)
        finally:
            torch.multinomial = multinomial

    def score_fixed(trainer: Any, inputs: Any) -> Any:
        drawn.begin_batch(trainer.scoring.step)
        return score(trainer, inputs)

    GenerationMixin.generate, GroupAdapter._generate_and_score_completions = generate_fixed, score_fixed
    try:
        yield
    finally:
        GenerationMixin.generate, GroupAdapter._generate_and_score_completions = generate, score


def keep_distinct_prompts(task: Any) -> Any:
    """The task, whose examples all ask something else: in a world the same question may be asked about other facts."""
    draw = task.examples

    def draw_distinct(split: str, count: int, seed: int, difficulty: str) -> list[Any]:
        known: dict[tuple[str, ...], Any] = {}
        for example in draw(split, 4 * count, seed, difficulty):
            known.setdefault(tuple(message.content for message in example.prompt), example)
        return list(known.values())[:count]

    task.examples = draw_distinct
    return task
