"""Experiences in the prompt against the frozen policy, at the same prompts and generated tokens, on a convention that only the reward tells."""

from typing import Any

from bench import procedure_runs
from bench.effect_cases import Case, Pairs, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens

TASK = {"name": "conventions", "difficulty": "easy"}
SETTINGS: dict[str, Any] = {
    "task": TASK,
    "steps": 6,
    "every": 1,
    "heldout": 256,
    "training__per_device_train_batch_size": 40,  # 8 prompts, five answers each as in the paper
    "training__num_generations": 5,
    "training__max_completion_length": 24,
}


def measure(seed: int) -> Pairs:
    own = procedure_runs.run_rounds(seed, "youtu-training-free-grpo", **SETTINGS)
    frozen = procedure_runs.run_rounds(seed, **SETTINGS)
    return {**compare_at_policy_tokens(own, frozen, procedure_runs.WRITTEN), **tiny.accuracies(own, frozen)}


CASE = Case(
    method="youtu-training-free-grpo",
    parent="procedure",
    claim="Experiences drawn from groups of answers raise held-out accuracy for as many generated tokens, while no weight changes.",
    quantities=(ACCURACY_AT_POLICY_TOKENS, tiny.ACCURACY),
    problem="sums with a hidden unit in the world conventions, frozen tiny policy, 6 rounds of 8 prompts",
    measure=measure,
    seeds=3,
    changed="answers name the good and notes are shorter: the cold-started policy followed no notes, and hardly does now",
)
