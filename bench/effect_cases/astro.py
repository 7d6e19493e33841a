"""GRPO after traces that try wrong branches and go back, against GRPO after direct answers from the same searches."""

from typing import Any

from bench import kept_runs, search_runs
from bench.effect_cases import Case, Pairs, tiny

TASK = {"name": "rewrites", "difficulty": "hard", "options": {"undo": True}}
TRACES: dict[str, Any] = {"trainer": "sft", "task": TASK, "training__demonstrations": 200, "training__learning_rate": 1e-3}
LAUNCH: dict[str, Any] = {
    "base": "grpo",
    "task": TASK,
    "training__max_completion_length": 112,
    "training__prompts": 256,
    "training__lr_scheduler_type": "linear",
}
TRACE_STEPS, STEPS = 60, 40


def train_stages(seed: int, branches: int) -> tiny.Trained:
    """GRPO from the policy that has imitated traces with so many wrong branches."""
    first = tiny.spec_of(seed, "astro", {"branches": branches}, steps=TRACE_STEPS, heldout=0, **TRACES)
    policy = {"kind": "folder", "path": str(kept_runs.keep_policy(f"astro-{branches}-{seed}", first))}
    return tiny.run_train(seed, "astro", {"low": 0.1, "high": 0.9}, steps=STEPS, policy=policy, **LAUNCH)


def measure(seed: int) -> Pairs:
    own, parent = train_stages(seed, 1), train_stages(seed, 0)
    return {**tiny.accuracies(own, parent), search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent)}


CASE = Case(
    method="astro",
    parent="sft",
    claim="After traces that go back GRPO solves more held-out problems than after direct answers.",
    quantities=(tiny.ACCURACY, search_runs.ACCURACY_AT_WRITTEN),
    problem=f"number paths of 3 or 4 moves with going back, tiny policy, {TRACE_STEPS} supervised steps on 200 searched problems, then {STEPS} GRPO;"
    " the parent's first stage has the same searches without wrong branches",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
