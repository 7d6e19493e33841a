"""What the measured pairs say: paired differences with Student's interval, a verdict, and Holm's correction over all comparisons."""

import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from scipy import stats
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from bench.effect_cases import Case, Quantity

LEVEL = 0.05  # of an interval, and of Holm's correction over all comparisons together
State = Literal["fresh", "stale", "not measured yet"]
Verdict = Literal["held", "held, negligible", "not seen", "opposite, negligible", "opposite"]
VERDICTS: tuple[Verdict, ...] = ("held", "held, negligible", "not seen", "opposite, negligible", "opposite")


@dataclass(frozen=True)
class Difference:
    """Of a quantity with the method and with its parent, over seeds: the mean, its 95 % interval and the p-value of no difference (two-sided)."""

    mean: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Comparison:
    """One quantity of one case. Without a ``difference`` it was not measured."""

    quantity: Quantity
    own: float = 0.0
    parent: float = 0.0
    difference: Difference | None = None
    holm: float = 1.0  # p-value after Holm's correction for the number of comparisons

    @property
    def verdict(self) -> Verdict | None:
        return None if self.difference is None else judge_difference(self.difference, self.quantity)

    @property
    def holds_among_all(self) -> bool:
        return self.difference is not None and self.holm < LEVEL


@dataclass(frozen=True)
class Result:
    """What is known of one case. ``state``: whether its code still is what was measured."""

    case: Case
    state: State
    seeds: int
    seconds: float
    step_time_ratio: float | None
    comparisons: tuple[Comparison, ...]


def results_of(measured: list[tuple[Case, dict[str, Any], str]]) -> list[Result]:
    """``measured``: each case, what is kept of it, and the digest of its code today."""
    made = [[compare_arms(quantity, kept) for quantity in case.quantities] for case, kept, _ in measured]
    adjusted = iter(adjust_holm([one.difference.p for row in made for one in row if one.difference]))
    found = []
    for (case, kept, code), row in zip(measured, made, strict=True):
        comparisons = tuple(Comparison(one.quantity, one.own, one.parent, one.difference, next(adjusted) if one.difference else 1.0) for one in row)
        known = any(one.difference for one in comparisons)
        state: State = "not measured yet" if not known else "fresh" if kept.get("code") == code else "stale"
        ratio = (kept.get("step_time") or {}).get("ratio")
        found.append(Result(case, state, len(kept.get("values", {})), kept.get("seconds", 0.0), ratio, comparisons))
    return found


def compare_arms(quantity: Quantity, kept: dict[str, Any]) -> Comparison:
    """An interval takes two seeds; with fewer nothing is said."""
    pairs = [values[quantity.name] for values in kept.get("values", {}).values() if quantity.name in values]
    if len(pairs) < 2:
        return Comparison(quantity)
    own, parent = (statistics.fmean(side) for side in zip(*pairs, strict=True))
    differences = [with_it - without for with_it, without in pairs]
    return Comparison(quantity, own, parent, paired_difference(differences, find_grid([value for pair in pairs for value in pair])))


def find_grid(values: list[float]) -> float:
    """The smallest step between two of the values; 0 where all are the same."""
    return min((after - before for before, after in pairwise(sorted(set(values)))), default=0.0)


def paired_difference(differences: list[float], grid: float) -> Difference:
    """Student's t over seeds. Where every seed has the same difference, that says how coarsely it is measured and not how little seeds vary: the
    spread is then that of two numbers rounded to ``grid``.
    """
    mean, count = statistics.fmean(differences), len(differences)
    if not any(differences):
        return Difference(0.0, 0.0, 0.0, 1.0)
    error = (statistics.stdev(differences) or grid / 6**0.5) / count**0.5  # a rounded number's variance is grid² / 12
    low, high = stats.t.interval(1 - LEVEL, count - 1, mean, error)
    return Difference(mean, float(low), float(high), float(2 * stats.t.sf(abs(mean) / error, count - 1)))


def judge_difference(difference: Difference, quantity: Quantity) -> Verdict:
    """On which side of zero the interval lies, seen from the claim, and whether the difference is worth having."""
    sign = 1.0 if quantity.direction == "higher" else -1.0
    nearest, furthest = sorted((sign * difference.low, sign * difference.high))
    if nearest <= 0.0 <= furthest:
        return "not seen"
    worth_having = abs(difference.mean) >= quantity.least
    if nearest > 0.0:
        return "held" if worth_having else "held, negligible"
    return "opposite" if worth_having else "opposite, negligible"


def adjust_holm(values: list[float]) -> list[float]:
    """p-values that hold for all comparisons together (Holm 1979)."""
    return [float(value) for value in multipletests(values, LEVEL, method="holm")[1]] if values else []
