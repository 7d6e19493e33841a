"""Intensities from comparisons with anchors, of a planted property under a noisy judge and of answers that are paid for one."""

import torch

from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.maths.intensity import compute_rank_correlation, estimate_intensity

TEXTS, ANCHORS, SCALE = 2000, 9, 10.0
PAID = {"target": 4.0}  # 95 characters; the first policy's answers have about 50
LAST = 10


def compare_noisily(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Planted intensities (n,), anchors (m,) and outcomes (n, m) of a judge that errs as Bradley and Terry say."""
    draws = torch.Generator().manual_seed(seed)
    planted = SCALE * (2 * torch.rand(TEXTS, generator=draws) - 1)
    anchors = torch.linspace(-SCALE, SCALE, ANCHORS)
    return planted, anchors, torch.bernoulli(torch.sigmoid(planted[:, None] - anchors), generator=draws)


def recover_planted(seed: int) -> Pairs:
    """Nine anchors against the middle one alone, and the estimate against the share of anchors that were beaten, stretched over the scale."""
    planted, anchors, outcomes = compare_noisily(seed)
    found, middle = estimate_intensity(anchors, outcomes), ANCHORS // 2
    single = estimate_intensity(anchors[middle : middle + 1], outcomes[:, middle : middle + 1])
    counted = SCALE * (2 * outcomes.mean(1) - 1)
    return {
        "rank correlation": (compute_rank_correlation(found, planted), compute_rank_correlation(single, planted)),
        "error": (float((found - planted).abs().mean()), float((counted - planted).abs().mean())),
    }


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, "valueflow", {**PAID, "weight": weight}) for weight in (0.05, 0.0))
    distance = (own.last("valueflow/distance", LAST), parent.last("valueflow/distance", LAST))
    return {**recover_planted(seed), "distance": distance, **tiny.budgeted_accuracies(own, parent)}


CASE = Case(
    method="valueflow",
    parent="grpo",
    claim="Nine anchors recover a planted intensity in its order; paid for an intensity, answers come nearer to it at no loss of accuracy.",
    quantities=(
        Quantity(
            "rank correlation",
            f"rank correlation of recovered and planted intensities of {TEXTS} texts, noisy judge; the parent compares with the middle anchor alone",
            "higher",
            0.05,
            "a twentieth of its range",
        ),
        Quantity(
            "error",
            "mean distance of recovered and planted intensities (of a scale of 20); the parent stretches the share of anchors that were beaten",
            "lower",
            0.2,
            "a hundredth of the scale",
        ),
        Quantity(
            "distance",
            f"mean distance of answers to the wanted intensity, last {LAST} of 40 steps",
            "lower",
            1.0,
            "a twentieth of the scale",
            by_construction="the reward pays for small distances",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="synthetic intensities and a judge with Bradley-Terry errors; word problems, length as the property, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
)
