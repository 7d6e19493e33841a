"""A value head that is fitted to what the searches back up, against one that stays as the first phase left it, and against GRPO."""

from typing import Any

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

DIFFICULTY, STEPS = "medium", 40
LAUNCH: dict[str, Any] = {
    "base": "dapo",
    "task": {"name": "rewrites", "difficulty": DIFFICULTY},
    "training__max_completion_length": 64,
    "training__lr_scheduler_type": "linear",
}


def measure(seed: int) -> Pairs:
    own, fixed = (tiny.run_train(seed, "rlm-blueprint-x1", {"refit": refit}, steps=STEPS, **LAUNCH) for refit in (True, False))
    parent = tiny.run_train(seed, steps=STEPS, **LAUNCH)
    errors = tuple(made.last("rlm-blueprint-x1/value_error", 10) for made in (own, fixed))
    return {
        "value error": (errors[0], errors[1]),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="rlm-blueprint-x1",
    parent="dapo",
    claim="On the positions that the policy's searches visit, the values of the second phase are nearer to the outcomes than those of the first.",
    quantities=(
        Quantity(
            "value error",
            "mean squared error of the values on the way to the outcomes (-1 or 1), last 10 steps; the parent's head is not fitted again",
            "lower",
            0.05,
            "a twentieth, of 1 for a head that knows nothing",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem=f"number paths of 2 or 3 moves, a tree of 12 expansions for each prompt, tiny policy, {STEPS} steps; accuracy against plain DAPO",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
