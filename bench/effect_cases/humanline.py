"""Humanline on stale pairs of word problems: all pairs are sampled from the first policy, as far as the run may move from it."""

from typing import Any

from bench.effect_cases import Case, tiny

SETTINGS: dict[str, Any] = {"trainer": "dpo", "training__learning_rate": 5e-4, "training__sampled_prompts": 400}


def measure(seed: int) -> tuple[float, float]:
    own = tiny.run_train(seed, "humanline", **SETTINGS)
    parent = tiny.run_train(seed, **SETTINGS)
    return own.final("heldout/accuracy"), parent.final("heldout/accuracy")


CASE = Case(
    method="humanline",
    parent="dpo",
    claim="training on stale pairs with a following reference and clipped ratios solves more held-out problems",
    quantity="held-out accuracy after 40 steps",
    direction="higher",
    problem="word problems, tiny policy, DPO on pairs sampled once, 40 steps, learning rate 0.0005",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo"},
)
