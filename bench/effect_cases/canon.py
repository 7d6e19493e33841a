"""CANON with the lean towards short answers (alpha 0.8) where both short and long answers can be right: length falls, accuracy does not."""

from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity
from bench.length_bandit import ACCURACY, ACCURACY_AT_TOKENS, GROUP, Draw, compare, learn
from trainers.maths.advantages import centre_by_group
from trainers.methods.group.canon import compute_conditional_advantages, high_half


def with_canon(draw: Draw) -> Tensor:
    return -compute_conditional_advantages(draw.rewards, high_half(draw.lengths, GROUP), GROUP, 1.0, 0.8) * draw.log_p


def with_dr_grpo(draw: Draw) -> Tensor:
    return -centre_by_group(draw.rewards, GROUP) * draw.log_p


def measure(seed: int) -> Pairs:
    return compare(learn(seed, with_canon), learn(seed, with_dr_grpo))


CASE = Case(
    method="canon",
    parent="dr-grpo",
    claim="with alpha = 0.8 on length, answers get shorter",
    quantities=(
        Quantity(
            "length",
            "mean length after 400 steps (tokens)",
            "lower",
            0.75,
            "a tenth of the length at the start",
            by_construction="alpha = 0.8 prices the longer half of each group",
        ),
        ACCURACY,
        ACCURACY_AT_TOKENS,
    ),
    problem="bandit of 4 lengths x right or wrong",
    measure=measure,
    launch={"base": "dr-grpo"},
)
