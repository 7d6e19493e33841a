"""A penalty for repeating oneself: the share of n-grams that occurred before.

The repetition reward of Yeo et al. 2025 (arXiv 2502.03373, "Demystifying Long Chain-of-Thought Reasoning") as TRL's users know it from Open R1:
(distinct n-grams / n-grams - 1), scaled to the largest penalty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainers.contract.hyperparameters import Strict, param
from trainers.rewards.base import RewardFunction
from trainers.rewards.ngrams import count_ngrams, split_words

if TYPE_CHECKING:
    from trainers.tasks.base import Example


class RepetitionParameters(Strict):
    size: int = param(4, "Words of an n-gram.", title="N-gram size", ge=1, le=50)
    penalty: float = param(1.0, "Score of a completion that only repeats is minus this.", title="Largest penalty", gt=0, le=1000)


class Repetition(RewardFunction):
    name = "repetition"
    title = "Repetition"
    summary = "0 where no n-gram of words occurs twice, down to minus the penalty as more of them repeat."
    Parameters = RepetitionParameters

    def score(self, text: str, example: Example) -> float | None:
        found = count_ngrams(split_words(text), self.parameters.size)
        return 0.0 if not found else float(self.parameters.penalty * (len(found) / found.total() - 1))
