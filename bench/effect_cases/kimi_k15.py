"""Kimi k1.5's mirror descent with its length reward from half of the run on, where both short and long answers can be right."""

from torch import Tensor

from bench.effect_cases import Case
from bench.length_bandit import GROUP, Draw, learn
from trainers.advantages import centred
from trainers.methods.group.kimi_k15 import length_reward, mirror_descent_loss

TAU, WEIGHT = 0.1, 0.2  # the method's defaults


def with_kimi(draw: Draw) -> Tensor:
    """On policy, every step an iteration of its own: the log-ratio to the reference is 0, its gradient too."""
    weight = WEIGHT if draw.step > draw.steps / 2 else 0.0
    rewards = draw.rewards + weight * length_reward(draw.lengths, draw.rewards > 0.5, GROUP)
    return mirror_descent_loss(centred(rewards, GROUP), draw.log_p, draw.log_p.detach(), TAU)


def with_dr_grpo(draw: Draw) -> Tensor:
    return -centred(draw.rewards, GROUP) * draw.log_p


def measure(seed: int) -> tuple[float, float]:
    return learn(seed, with_kimi).length, learn(seed, with_dr_grpo).length


CASE = Case(
    method="kimi-k15",
    parent="dr-grpo",
    claim="the length reward, on from half of the run, shortens answers",
    quantity="mean length after 400 steps",
    direction="lower",
    problem="bandit of 4 lengths x right or wrong",
    measure=measure,
    launch={"base": "dr-grpo"},
)
