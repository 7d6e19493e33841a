"""TAPO on sums and products with a calculator: nothing but right answers pays, and what is long costs, against DAPO on right answers alone."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens

# An answer at once takes 4 to 6 tokens, one with a call 12 to 18: the buffer begins at 8.
LAUNCH: dict[str, Any] = {
    "base": "dapo",
    "task": {"name": "sums", "difficulty": "easy", "rewards": {"thrift": 0.0}},
    "training__max_completion_length": 24,
    "training__lr_scheduler_type": "linear",
}
CONFIG = {"buffer": 2 / 3, "factor": 0.5}
STEPS = 60


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, name, CONFIG if name else None, steps=STEPS, **LAUNCH) for name in ("tapo-tool", ""))
    return (
        {"called": (own.final("heldout/called"), parent.final("heldout/called"))}
        | tiny.accuracies(own, parent)
        | compare_at_policy_tokens(own, parent, "tapo-tool/policy_tokens")
    )


CASE = Case(
    method="tapo-tool",
    parent="dapo",
    claim="calls of the calculator go to the products and not to the sums",
    quantities=(
        Quantity(
            "called",
            "share of held-out prompts with a call for a product, or without one for a sum",
            "higher",
            0.02,
            "two more of a hundred prompts",
            by_construction="length, the calculator's words included, costs reward",
        ),
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
    ),
    problem=f"one-digit sums and two-digit products with a calculator, tiny policy, {STEPS} steps, rewards for right answers alone",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "config": CONFIG},
)
