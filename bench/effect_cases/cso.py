"""Verified critical steps against candidates that nobody verified, and against whole episodes, with as many pairs; expert and judge by rule err."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

LAUNCH: dict[str, Any] = {
    "trainer": "dpo",
    "task": {"name": "rooms", "difficulty": "medium"},
    "training__max_completion_length": 136,
    "training__max_length": 200,
    "training__beta": 0.5,
}
CONFIG = {"prompts": 400, "most": 100}
DATA = {"training__sampled_prompts": 64}  # the trainer's own pairs, which are not used


def measure(seed: int) -> Pairs:
    verified, unverified, episodes = (
        tiny.run_train(seed, "cso", {**CONFIG, "pairs": pairs}, **LAUNCH, **DATA) for pairs in ("verified", "unverified", "episodes")
    )
    accuracy = "heldout/accuracy"
    return {
        "against unverified pairs": (verified.final(accuracy), unverified.final(accuracy)),
        **tiny.budgeted_accuracies(verified, episodes),
        "best moves": (verified.steps[0]["cso/best_moves"], unverified.steps[0]["cso/best_moves"]),
    }


CASE = Case(
    method="cso",
    parent="dpo",
    claim="With as many pairs, steps that were verified by playing on raise success more than unverified steps and than whole episodes.",
    quantities=(
        Quantity(
            "against unverified pairs",
            "held-out accuracy after 40 steps, the parent with candidates that nobody has verified",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
        Quantity(
            "best moves",
            "share of preferred actions that are the best move; the parent: of unverified pairs",
            "higher",
            0.02,
            "two more of a hundred pairs",
            by_construction="most wrong moves lead to failure and are dropped",
        ),
    ),
    problem="a row of five rooms with a key, 100 pairs, tiny policy, 40 steps; the parent is DPO on a success and a failure of a prompt",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "config": CONFIG},
)
