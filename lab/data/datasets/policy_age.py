"""How old the policy was that gave an answer, and what a label of old answers weighs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.data.datasets.rules import DatasetRule
from lab.data.datasets.sides import SourceRollout


def find_newest_steps(sides: Iterable[SourceRollout]) -> dict[Any, int]:
    """Run → the newest step among its labelled rollouts."""
    newest: defaultdict[Any, int] = defaultdict(int)
    for side in sides:
        newest[side.run] = max(newest[side.run], side.step)
    return dict(newest)


def compute_policy_age(sides: Sequence[SourceRollout], newest: Mapping[Any, int], rule: DatasetRule) -> int:
    """Steps between the oldest policy of a label's answers and the one the rule counts from; 0 where that one is older."""
    ages = [(newest[side.run] if rule.age_from is None else rule.age_from) - side.step for side in sides]
    return max([0, *ages])


def compute_age_weight(age: int, half_life: int) -> float:
    """1 for the newest policy, 1/2 after ``half_life`` steps, 1/4 after twice as many; six significant digits."""
    return float(f"{0.5 ** min(age / half_life, 1000):.6g}")


def compute_effective_rows(weights: Sequence[float]) -> float:
    """How many rows of equal weight say as much: (sum of w)² / sum of w² (Kish 1965, effective sample size). 0 where all weigh nothing."""
    squares = sum(weight * weight for weight in weights)
    return sum(weights) ** 2 / squares if squares else 0.0
