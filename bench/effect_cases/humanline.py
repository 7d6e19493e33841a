"""Humanline on stale pairs of word problems: all pairs are sampled from the first policy, as far as the run may move from it."""

from typing import Any

from bench.effect_cases import Case, Pairs, tiny

SETTINGS: dict[str, Any] = {"trainer": "dpo", "training__learning_rate": 5e-4, "training__sampled_prompts": 400}


def measure(seed: int) -> Pairs:
    own = tiny.run_train(seed, "humanline", **SETTINGS)
    parent = tiny.run_train(seed, **SETTINGS)
    return tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="humanline",
    parent="dpo",
    claim="training on stale pairs with a following reference and clipped ratios solves more held-out problems",
    quantities=(tiny.ACCURACY, tiny.ACCURACY_AT_TOKENS),
    problem="word problems, tiny policy, DPO on pairs sampled once, 40 steps, learning rate 0.0005",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo"},
)
