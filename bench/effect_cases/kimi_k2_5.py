"""Kimi K2.5's Toggle where both short and long answers can be right: phases of 10 steps, budget = the median length of the first right answers."""

import torch
from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity
from bench.length_bandit import ACCURACY, ACCURACY_AT_TOKENS, GROUP, Draw, compare, learn
from trainers.maths.advantages import centre_by_group
from trainers.methods.group.kimi_k2_5 import limited_phase, masked_ratio_loss, toggle_rewards

LOW, HIGH, TAU, PERIOD, GATE = 0.5, 2.0, 1e-3, 10, 0.7  # the method's defaults


class Toggled:
    def __init__(self) -> None:
        self.budget: float | None = None

    def __call__(self, draw: Draw) -> Tensor:
        right = draw.lengths[draw.rewards > 0.5]
        if self.budget is None and len(right):
            self.budget = float(torch.quantile(right, 0.5))
        rewards = draw.rewards
        if self.budget is not None and limited_phase(draw.step, PERIOD):
            rewards = toggle_rewards(rewards, draw.lengths, torch.full_like(rewards, self.budget), GROUP, GATE)
        log_ratio = (draw.log_p - draw.log_p.detach())[:, None]
        return masked_ratio_loss(log_ratio, centre_by_group(rewards, GROUP)[:, None], LOW, HIGH, TAU)


def without(draw: Draw) -> Tensor:
    return -centre_by_group(draw.rewards, GROUP) * draw.log_p


def measure(seed: int) -> Pairs:
    return compare(learn(seed, Toggled()), learn(seed, without))


CASE = Case(
    method="kimi-k2.5",
    parent="dapo",
    claim="Toggle shortens answers",
    quantities=(
        Quantity(
            "length",
            "mean length after 400 steps (tokens)",
            "lower",
            0.75,
            "a tenth of the length at the start",
            by_construction="every other phase pays nothing for answers over the budget",
        ),
        ACCURACY,
        ACCURACY_AT_TOKENS,
    ),
    problem="bandit of 4 lengths x right or wrong",
    measure=measure,
    launch={"base": "dapo"},
)
