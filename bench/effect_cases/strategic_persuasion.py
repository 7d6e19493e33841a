"""Persuasion gain as the reward, against a reward for reaching the best stance; measured on claims that training never has."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens

LAUNCH: dict[str, Any] = {
    "base": "grpo",
    "task": {"name": "interview", "difficulty": "medium", "options": {"about": "stance"}},
    "training__max_completion_length": 48,
    "training__lr_scheduler_type": "linear",
}
STEPS = 60


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, name, steps=STEPS, **LAUNCH) for name in ("strategic-persuasion", ""))
    return (
        {"gain": (2 * own.final("heldout/gain"), 2 * parent.final("heldout/gain"))}
        | tiny.accuracies(own, parent)
        | compare_at_policy_tokens(own, parent)
    )


CASE = Case(
    method="strategic-persuasion",
    parent="grpo",
    claim="the mean gain on held-out claims is higher than with a reward for the best dialogue alone",
    quantities=(
        Quantity(
            "gain",
            "mean gain over the prior stance on held-out claims (points of 7, two messages)",
            "higher",
            0.1,
            "a tenth of a point",
            by_construction="the gain is the reward, though on other claims",
        ),
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
    ),
    problem=f"two messages to a receiver by rule, 12 claims to train on and 4 others, tiny policy, {STEPS} steps; the parent is paid for 2 points",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
    changed="two messages in place of three, because neither arm ever moved the receiver by three points",
)
