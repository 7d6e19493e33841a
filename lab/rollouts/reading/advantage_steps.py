"""A group's advantages worked out again from its rewards, with every number that goes in, to stand beside what the trainer stored.

The formulas are those of ``trainers/maths/advantages.py`` and ``trainers/methods/bases/rloo.py`` (tests hold the two together), on plain numbers,
because a web process has no torch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

EPSILON = 1e-4  # TRL's, added to the standard deviation
TOLERANCE = 2e-3  # between the trainer's single precision and ours, of an advantage near 1

SCALES = {
    "group": "divided by the group's standard deviation",
    "batch": "divided by the standard deviation of the whole step",
    "none": "not scaled",
    "leave-one-out": "leave-one-out, not scaled",
}
FORMULAS = {
    "group": r"A_i = \frac{r_i - \mathrm{mean}(r)}{\mathrm{std}(r) + \epsilon}",
    "batch": r"A_i = \frac{r_i - \mathrm{mean}(r)}{\mathrm{std}(r_{\mathrm{batch}}) + \epsilon}",
    "none": r"A_i = r_i - \mathrm{mean}(r)",
    "leave-one-out": r"A_i = r_i - \frac{1}{G-1}\sum_{j \neq i} r_j",
}


@dataclass(frozen=True)
class AdvantageInputs:
    """What a group's advantages are worked out from. ``scale`` is a key of SCALES; rewards are those after shaping, one a member."""

    scale: str
    rewards: tuple[float, ...]
    mean: float
    std: float  # of the sample (divided by G − 1), 0 when all rewards are equal or there is one
    batch_std: float | None = None

    @property
    def size(self) -> int:
        return len(self.rewards)

    @property
    def zero_variance(self) -> bool:
        return self.size > 1 and min(self.rewards) == max(self.rewards)

    @property
    def divisor(self) -> float:
        """What the distance to the mean is divided by."""
        if self.scale == "group":
            return self.std + EPSILON
        if self.scale == "batch":
            return (self.batch_std or 0.0) + EPSILON
        return (self.size - 1) / self.size if self.scale == "leave-one-out" and self.size > 1 else 1.0

    def advantage(self, reward: float) -> float:
        """Of a member with this reward; exactly 0 in a group of equal rewards, and in leave-one-out of one."""
        if self.zero_variance or (self.size == 1 and self.scale == "leave-one-out"):
            return 0.0
        return (reward - self.mean) / self.divisor

    def written_out(self, reward: float) -> str:
        """The formula with this member's numbers."""
        distance = f"{format_formula_number(reward)} − {format_formula_number(self.mean)}"
        if self.scale == "group":
            return f"({distance}) / ({format_formula_number(self.std)} + {EPSILON:g})"
        if self.scale == "batch":
            return f"({distance}) / ({format_formula_number(self.batch_std or 0.0)} + {EPSILON:g})"
        if self.scale == "leave-one-out" and self.size > 1:
            others = (self.mean * self.size - reward) / (self.size - 1)
            return f"{format_formula_number(reward)} − {format_formula_number(others)}"
        return distance


def build_scaling_inputs(scale: str, rewards: Sequence[float], batch: Sequence[float] = ()) -> AdvantageInputs | None:
    """None for a scale mode that is not known or without a reward. ``batch`` are the rewards of the whole step, for "batch" only."""
    if scale not in SCALES or not rewards:
        return None
    flat = min(rewards) == max(rewards)
    std = 0.0 if flat or len(rewards) < 2 else statistics.stdev(rewards)
    batch_std = statistics.stdev(batch) if len(batch) > 1 else None
    return AdvantageInputs(scale, tuple(rewards), rewards[0] if flat else statistics.fmean(rewards), std, batch_std)


def is_same_advantage(stored: float, worked_out: float) -> bool:
    return math.isclose(stored, worked_out, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def format_formula_number(value: float) -> str:
    """Four significant digits with a real minus sign; in brackets it stands after another sign without confusion."""
    text = f"{value:.4g}".replace("-", "−")
    return f"({text})" if value < 0 else text
