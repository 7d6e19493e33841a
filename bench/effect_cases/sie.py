"""SIE on facts of a graph in the prompt: trained with half of the support, against training on complete prompts; held-out prompts lack a fact."""

from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens

LAUNCH: dict[str, Any] = {
    "base": "grpo",
    "task": {"name": "graph", "difficulty": "easy", "options": {"in_context": True, "support": 0.5}},
    "training__max_completion_length": 40,
    "training__lr_scheduler_type": "linear",
}
CONFIG = {"ratio": "0.5"}
STEPS = 60


def run_ratio(seed: int, ratio: str) -> tiny.Trained:
    """From a policy that has been shown complete prompts alone."""
    complete = {"name": "graph", "difficulty": "easy", "options": {"in_context": True}}
    policy = {"kind": "folder", "path": str(kept_runs.find_cold_start(complete))}
    return tiny.run_train(seed, "sie", {"ratio": ratio}, steps=STEPS, policy=policy, **LAUNCH)


def measure(seed: int) -> Pairs:
    own, parent = (run_ratio(seed, ratio) for ratio in (CONFIG["ratio"], "1"))
    return tiny.accuracies(own, parent) | compare_at_policy_tokens(own, parent)


CASE = Case(
    method="sie",
    parent="grpo",
    claim="trained on prompts that keep half of the supporting facts it answers prompts with a fact missing, trained on complete prompts it does not",
    quantities=(tiny.ACCURACY, ACCURACY_AT_POLICY_TOKENS),
    problem=f"one edge and one feature of a graph in the prompt, one of both left out of held-out prompts, {STEPS} steps of a tiny policy that was"
    " shown complete prompts alone; the parent's prompts are complete",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "config": CONFIG},
)
