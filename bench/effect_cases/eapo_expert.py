"""EAPO on sums and products: the same policy and reward with an expert that fades and with one that never replies."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens

LAUNCH: dict[str, Any] = {
    "base": "dapo",
    "task": {"name": "sums", "difficulty": "hard", "options": {"consult": 0.5}},
    "training__max_completion_length": 48,
    "training__lr_scheduler_type": "linear",
}
CONFIG = {"fading": 3.0}
STEPS = 60


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, "eapo-expert", config, steps=STEPS, **LAUNCH) for config in (CONFIG, {"fading": 0.0, "turns": 2}))
    consulted = [[step["eapo-expert/consulted"] for step in arm.steps] for arm in (own, parent)]
    falls = tuple(max(rates) - sum(rates[-5:]) / 5 for rates in consulted)
    return tiny.accuracies(own, parent) | compare_at_policy_tokens(own, parent) | {"fall of consultations": (falls[0], falls[1])}


CASE = Case(
    method="eapo-expert",
    parent="dapo",
    claim="after training with an expert that fades, more held-out answers are right without it than after training without one",
    quantities=(
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
        Quantity(
            "fall of consultations",
            "share of episodes that consult: highest of all steps minus mean of the last five",
            "higher",
            0.05,
            "five of a hundred episodes",
            by_construction="replies become rare, and turns few",
        ),
    ),
    problem=f"one-digit sums and products of three digits by two, tiny policy, {STEPS} steps; the parent's reward is the method's",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "config": CONFIG},
    changed="how fast the expert fades: with 10 in place of 3 the policy still consulted in half of its episodes after the last step",
)
