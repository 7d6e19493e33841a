"""Kimi k1.5's mirror descent with its length reward from half of the run on, where both short and long answers can be right."""

from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity
from bench.length_bandit import ACCURACY, ACCURACY_AT_TOKENS, GROUP, Draw, compare, learn
from trainers.maths.advantages import centre_by_group
from trainers.methods.group.kimi_k15 import length_reward, mirror_descent_loss

TAU, WEIGHT = 0.1, 0.2  # the method's defaults


def with_kimi(draw: Draw) -> Tensor:
    """On policy, every step an iteration of its own: the log-ratio to the reference is 0, its gradient too."""
    weight = WEIGHT if draw.step > draw.steps / 2 else 0.0
    rewards = draw.rewards + weight * length_reward(draw.lengths, draw.rewards > 0.5, GROUP)
    return mirror_descent_loss(centre_by_group(rewards, GROUP), draw.log_p, draw.log_p.detach(), TAU)


def with_dr_grpo(draw: Draw) -> Tensor:
    return -centre_by_group(draw.rewards, GROUP) * draw.log_p


def measure(seed: int) -> Pairs:
    return compare(learn(seed, with_kimi), learn(seed, with_dr_grpo))


CASE = Case(
    method="kimi-k15",
    parent="dr-grpo",
    claim="the length reward, on from half of the run, shortens answers",
    quantities=(
        Quantity(
            "length",
            "mean length after 400 steps (tokens)",
            "lower",
            0.75,
            "a tenth of the length at the start",
            by_construction="the reward pays for short answers",
        ),
        ACCURACY,
        ACCURACY_AT_TOKENS,
    ),
    problem="bandit of 4 lengths x right or wrong",
    measure=measure,
    launch={"base": "dr-grpo"},
)
