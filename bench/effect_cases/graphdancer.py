"""GraphDancer's mixture on a graph: a policy that knows easy questions, trained on all difficulties, measured on the hardest."""

from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens

TASK = {"name": "graph", "difficulty": "hard"}
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": 64, "training__lr_scheduler_type": "linear"}
UNIFORM = {"first": 1.0, "last": 1.0, "bias": [1.0, 1.0, 1.0]}
EASY_TO_HARD = {"first": 0.0, "last": 0.0}
STEPS = 60


def run_mixture(seed: int, config: dict[str, Any]) -> tiny.Trained:
    policy = {"kind": "folder", "path": str(kept_runs.find_cold_start({**TASK, "difficulty": "easy"}))}
    return tiny.run_train(seed, "graphdancer", config, steps=STEPS, policy=policy, **LAUNCH)


def measure(seed: int) -> Pairs:
    own, uniform, rising = (run_mixture(seed, config) for config in ({}, UNIFORM, EASY_TO_HARD))
    return (
        tiny.accuracies(own, uniform)
        | compare_at_policy_tokens(own, uniform)
        | {"against easy to hard": (own.final("heldout/accuracy"), rising.final("heldout/accuracy"))}
    )


CASE = Case(
    method="graphdancer",
    parent="grpo",
    claim="the biased mixture answers more of the hardest questions than equal shares, or than easy to hard alone, after as many steps",
    quantities=(
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
        Quantity(
            "against easy to hard",
            "held-out accuracy after the same number of steps, the parent with the moving Gaussian and no bias",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem=f"questions of 1 to 3 rounds of calls, a tiny policy that was shown those of 1 or 2, held-out ones of 3, {STEPS} steps of stage 1; the"
    " parent's batches have equal shares of each, and the same reward",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
