"""InfoAgent on questions of three searches: GRPO after right traces, against more of the traces."""

from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

TASK = {"name": "entity_search", "difficulty": "medium"}
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": 160, "training__lr_scheduler_type": "linear"}
TRACES, STEPS = 200, 40


def measure(seed: int) -> Pairs:
    first = tiny.spec_of(seed, "infoagent", trainer="sft", steps=TRACES, heldout=0, task=TASK)
    policy = {"kind": "folder", "path": str(kept_runs.keep_policy(f"infoagent-{TRACES}-{seed}", first))}
    own = tiny.run_train(seed, "infoagent", steps=STEPS, policy=policy, **LAUNCH)
    parent = tiny.run_train(seed, "infoagent", trainer="sft", steps=STEPS, policy=policy, task=TASK)
    deep, shallow = (own.last(f"infoagent/difficulty_{depth}", 10) for depth in (3, 2))
    return tiny.accuracies(own, parent) | {"calls of right runs": (deep, shallow)}


CASE = Case(
    method="infoagent",
    parent="sft",
    claim="after supervised traces GRPO answers more held-out questions than further traces do, and right runs take more calls on deeper questions",
    quantities=(
        tiny.ACCURACY,
        Quantity(
            "calls of right runs",
            "mean calls of right runs on questions of three searches, against those on questions of two; last 10 steps",
            "higher",
            0.5,
            "half a call",
        ),
    ),
    problem=f"a person to find by two clues, one of them blurred, tiny policy after {TRACES} steps on right traces, then {STEPS} steps; the parent"
    " goes on with the traces",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
