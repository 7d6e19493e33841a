"""The held-out reward: how much of a change may be chance."""

from __future__ import annotations

import math

import numpy as np

from lab.rollouts.doctor.facts import RunFacts

HELD = "heldout/reward"


def noise_of(facts: RunFacts) -> float:
    """How far apart two measurements may lie by chance: three standard errors of a difference.

    Of shares by the number of prompts asked. Of other rewards by how measurements jump from one to the next (median of the absolute differences),
    and at least a tenth of the best.
    """
    values = facts.of(HELD).values
    best = float(values.max())
    if facts.heldout_prompts and values.min() >= 0 and best <= 1:
        middle = min(max(best, 0.05), 0.95)
        return max(0.02, 3 * math.sqrt(2 * middle * (1 - middle) / facts.heldout_prompts))
    jumps = float(np.median(np.abs(np.diff(values)))) if len(values) > 2 else 0.0
    return max(0.1 * abs(best), 3 * jumps, 1e-6)


def rise_of(facts: RunFacts) -> float:
    """From the first to the last measurement; 0 when there are fewer than two or chance explains it."""
    values = facts.of(HELD).values
    if len(values) < 2:
        return 0.0
    change = float(values[-1] - values[0])
    return change if abs(change) > noise_of(facts) else 0.0
