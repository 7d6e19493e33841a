"""CANON with the lean towards short answers (alpha 0.8) where both short and long answers can be right: length falls, accuracy does not."""

from torch import Tensor

from bench.effect_cases import Case
from bench.length_bandit import GROUP, Draw, learn
from trainers.advantages import centred
from trainers.methods.group.canon import conditional, high_half


def with_canon(draw: Draw) -> Tensor:
    return -conditional(draw.rewards, high_half(draw.lengths, GROUP), GROUP, 1.0, 0.8) * draw.log_p


def with_dr_grpo(draw: Draw) -> Tensor:
    return -centred(draw.rewards, GROUP) * draw.log_p


def measure(seed: int) -> tuple[float, float]:
    return learn(seed, with_canon).length, learn(seed, with_dr_grpo).length


CASE = Case(
    method="canon",
    parent="dr-grpo",
    claim="with alpha = 0.8 on length, answers get shorter",
    quantity="mean length after 400 steps",
    direction="lower",
    problem="bandit of 4 lengths x right or wrong",
    measure=measure,
    launch={"base": "dr-grpo"},
)
