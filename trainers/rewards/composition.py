"""From a definition to what scores a batch: a library function, code in the sandbox, or a sum, product or gate of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainers.contract.problems import SpecError
from trainers.contract.reward_definitions import CodeReward, GateReward, LibraryReward, ProductReward, SumReward
from trainers.rewards.definition_checks import find_definition_problems, parse_parameters
from trainers.rewards.registry import FUNCTIONS
from trainers.rewards.scores import RewardFailed, Score, Scorer, ScoringContext

if TYPE_CHECKING:
    from trainers.contract.reward_definitions import RewardDefinition
    from trainers.rewards.base import RewardFunction
    from trainers.rewards.scores import Rows


def build_reward(definition: RewardDefinition, path: str = "definition") -> Scorer:
    """What scores as ``definition`` says. Raises SpecError with every unknown function and wrong parameter, at its place below ``path``.

    Folders and endpoints are looked for when scoring begins; ``definition_checks`` finds before what is not there.
    """
    if problems := find_definition_problems(definition, path, here=False):
        raise SpecError(problems)
    return build_part(definition)


def build_part(definition: RewardDefinition) -> Scorer:
    if isinstance(definition, LibraryReward):
        return LibraryScorer(FUNCTIONS[definition.function](parse_parameters(definition, "")))
    if isinstance(definition, CodeReward):
        from trainers.rewards.code import CodeScorer

        return CodeScorer(definition.source)
    if isinstance(definition, SumReward):
        return SumScorer([build_part(part.reward) for part in definition.parts], [part.weight for part in definition.parts])
    if isinstance(definition, ProductReward):
        return ProductScorer([build_part(part) for part in definition.parts])
    return GateScorer(definition, build_part(definition.gate), build_part(definition.reward))


class LibraryScorer:
    def __init__(self, function: RewardFunction) -> None:
        self.function, self.light = function, function.light

    def score_batch(self, rows: Rows) -> list[Score]:
        scores = self.function.score_batch(rows) if rows else []
        if len(scores) != len(rows):
            raise RewardFailed(f"{self.function.name} gave {len(scores)} scores for {len(rows)} completions")
        return [check_finite_score(score) for score in scores]

    def collect(self) -> dict[str, float]:
        return self.function.collect()

    def open(self, context: ScoringContext) -> None:
        self.function.open(context)

    def close(self) -> None:
        self.function.close()


class Composition:
    def __init__(self, parts: Sequence[Scorer]) -> None:
        self.parts, self.light = parts, all(part.light for part in parts)

    def collect(self) -> dict[str, float]:
        counted: dict[str, float] = defaultdict(float)
        for part in self.parts:
            for name, count in part.collect().items():
                counted[name] += count
        return dict(counted)

    def open(self, context: ScoringContext) -> None:
        for part in self.parts:
            part.open(context)

    def close(self) -> None:
        for part in self.parts:
            part.close()


class SumScorer(Composition):
    """Sum of weight x score over the parts with an opinion; None when none has one."""

    def __init__(self, parts: Sequence[Scorer], weights: Sequence[float]) -> None:
        super().__init__(parts)
        self.weights = weights

    def score_batch(self, rows: Rows) -> list[Score]:
        columns = [part.score_batch(rows) for part in self.parts]
        return [self.add(scores) for scores in zip(*columns, strict=True)]

    def add(self, scores: Sequence[Score]) -> Score:
        known = [weight * score.value for weight, score in zip(self.weights, scores, strict=True) if score.value is not None]
        return join_scores(scores, sum(known) if known else None)


class ProductScorer(Composition):
    """Product of all parts; None when one has no opinion."""

    def score_batch(self, rows: Rows) -> list[Score]:
        columns = [part.score_batch(rows) for part in self.parts]
        return [self.multiply(scores) for scores in zip(*columns, strict=True)]

    def multiply(self, scores: Sequence[Score]) -> Score:
        known = [score.value for score in scores if score.value is not None]
        return join_scores(scores, math.prod(known) if len(known) == len(scores) else None)


class GateScorer(Composition):
    """The reward where the gate scores enough, else ``otherwise``; None when the gate has no opinion. Only rows of open gates are scored twice."""

    def __init__(self, definition: GateReward, gate: Scorer, reward: Scorer) -> None:
        super().__init__([gate, reward])
        self.definition, self.gate, self.reward = definition, gate, reward

    def score_batch(self, rows: Rows) -> list[Score]:
        gates = self.gate.score_batch(rows)
        opened = [place for place, score in enumerate(gates) if score.value is not None and score.value >= self.definition.at_least]
        found = dict(zip(opened, self.reward.score_batch([rows[place] for place in opened]), strict=True))
        return [
            join_scores([gate, found[place]], found[place].value)
            if place in found
            else replace(gate, value=None if gate.value is None else self.definition.otherwise)
            for place, gate in enumerate(gates)
        ]


def join_scores(scores: Sequence[Score], value: float | None) -> Score:
    """A composition's score: the first error of its parts, the time of all of them."""
    error = next((score.error for score in scores if score.error), "")
    return check_finite_score(Score(value, error, sum(score.seconds for score in scores), any(score.broken for score in scores)))


def check_finite_score(score: Score) -> Score:
    if score.value is None or math.isfinite(score.value):
        return score
    return replace(score, value=None, error=f"the score is {score.value}, not a finite number")
