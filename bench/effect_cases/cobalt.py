"""Cobalt on list programs: single programs after histories played once, against GRPO over whole episodes; and who follows swapped tests."""

from pathlib import Path
from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.equal_tokens import Curve, values_at_equal_tokens
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, trace_heldout

TASK: dict[str, Any] = {"name": "programs", "difficulty": "medium"}
SWAPPED = {**TASK, "options": {"documented": 1.0, "swapped": 1.0}}
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": 72, "training__lr_scheduler_type": "linear"}
STEPS, HELDOUT = 60, 128


def keep_arm(seed: int, method: str) -> Path:
    return kept_runs.keep_policy(f"cobalt-{method or 'whole'}-{seed}", tiny.spec_of(seed, method, steps=STEPS, **LAUNCH))


def trace_accuracy(made: tiny.Trained, method: str) -> Curve:
    """Held-out accuracy by the tokens that the policy had generated until then, those of the histories included."""
    before = made.steps[0].get("cobalt/generated", 0.0)
    curve = trace_heldout(made, "heldout/accuracy", "cobalt/policy_tokens" if method else "")
    return [(tokens + before, value) for tokens, value in curve]


def measure(seed: int) -> Pairs:
    folders = [keep_arm(seed, method) for method in ("cobalt", "")]
    own, parent = (tiny.read(folder.parent) for folder in folders)
    resisted = [kept_runs.score_heldout(folder, SWAPPED, HELDOUT, 72) for folder in folders]
    return {
        ACCURACY_AT_POLICY_TOKENS.name: values_at_equal_tokens(trace_accuracy(own, "cobalt"), trace_accuracy(parent, "")),
        **tiny.accuracies(own, parent),
        "right despite swapped tests": (resisted[0], resisted[1]),
    }


CASE = Case(
    method="cobalt",
    parent="grpo",
    claim="single programs after histories teach as much per generated token as whole episodes, and misleading tests are followed less",
    quantities=(
        ACCURACY_AT_POLICY_TOKENS,
        tiny.ACCURACY,
        Quantity(
            "right despite swapped tests",
            "share of held-out programs told in words that are right in the end, though both tests that are shown mislead",
            "higher",
            0.05,
            "a program in twenty",
        ),
    ),
    problem=f"one of twenty operations on a list, told by tests or words, up to three programs an episode, tiny policy, {STEPS} steps",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
