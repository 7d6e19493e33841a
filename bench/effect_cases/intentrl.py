"""IntentRL: single questions for half of the steps and then dialogues, against single questions alone."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens

LAUNCH: dict[str, Any] = {
    "base": "grpo",
    "task": {"name": "interview", "difficulty": "easy", "options": {"about": "intents"}},
    "training__max_completion_length": 64,
    "training__lr_scheduler_type": "linear",
}
CONFIG = {"first": 0.5}
STEPS = 60


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, "intentrl", {"first": share}, steps=STEPS, **LAUNCH) for share in (CONFIG["first"], 1.0))
    repeats = {"repeats": (1 - own.final("heldout/fresh"), 1 - parent.final("heldout/fresh"))}
    return (
        repeats
        | {"intents per question": (own.final("heldout/thrift"), parent.final("heldout/thrift"))}
        | tiny.accuracies(own, parent)
        | compare_at_policy_tokens(own, parent)
    )


CASE = Case(
    method="intentrl",
    parent="grpo",
    claim="after dialogues too, fewer held-out questions are repeated and more bring out an intent than after single questions alone",
    quantities=(
        Quantity(
            "repeats",
            "share of held-out questions that repeat one",
            "lower",
            0.02,
            "two more of a hundred questions",
            by_construction="repeated questions cost reward in both arms",
        ),
        Quantity(
            "intents per question",
            "share of held-out questions that bring out an intent",
            "higher",
            0.02,
            "two more of a hundred questions",
            by_construction="it is what a question is paid for in both arms",
        ),
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
    ),
    problem=f"two of twenty intents hidden, a person by rule, tiny policy, {STEPS} steps; the parent is the method with stage 1 alone",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "config": CONFIG},
)
