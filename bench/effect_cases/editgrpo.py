"""Word problems that the policy seldom solves, with half of each group edited from the reference, against Dr. GRPO on the same rewards."""

from typing import Any

from bench import policy_tokens
from bench.effect_cases import Case, Pairs, Quantity, tiny

LAUNCH: dict[str, Any] = {
    "base": "dr-grpo",
    "task": {"name": "mini_gsm", "difficulty": "hard", "rewards": {"correct": 1.0, "working": 1.0}},
    "training__max_completion_length": 70,
}


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, method, **LAUNCH) for method in ("editgrpo", ""))
    return {
        "working": (own.final("heldout/working"), parent.final("heldout/working")),
        **tiny.accuracies(own, parent),
        **policy_tokens.compare_at_policy_tokens(own, parent, "editgrpo/generated"),
    }


CASE = Case(
    method="editgrpo",
    parent="dr-grpo",
    claim="Where the policy's own working earns little, more of it is right after as many steps when half of each group is edited.",
    quantities=(
        Quantity("working", "share of right lines in the working of held-out problems after 40 steps", "higher", 0.02, "one line of fifty"),
        tiny.ACCURACY,
        policy_tokens.ACCURACY_AT_POLICY_TOKENS,
    ),
    problem="word problems of 4 to 6 changes, paid for lines and answers alike, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
