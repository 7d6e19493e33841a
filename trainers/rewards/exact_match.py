"""Whether the answer is the reference, character for character."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainers.rewards.answers import AnswerPlace, find_answer, find_reference
from trainers.rewards.base import RewardFunction

if TYPE_CHECKING:
    from trainers.tasks.base import Example


class ExactMatch(RewardFunction):
    name = "exact-match"
    title = "Exact match"
    summary = "1 where the answer is the reference, character for character; space around both is ignored."
    Parameters = AnswerPlace

    def score(self, text: str, example: Example) -> float | None:
        reference = find_reference(example, self.parameters)
        return float(find_answer(text, example, self.parameters) == reference)
