"""Walks of a dialogue graph by likelihood against random walks, and against walks that ask every question, at the same users and seeds."""

from typing import Any

from bench import procedure_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

TASK = {"name": "interview", "difficulty": "medium", "options": {"about": "dialogue"}}
LAUNCH: dict[str, Any] = {"task": TASK, "training__max_completion_length": 64}
SETTINGS: dict[str, Any] = {"steps": 1, "every": 1, "heldout": 256, "training__per_device_train_batch_size": 8}
NAME = "zero-shot-cts"


def measure_walks(seed: int, config: dict[str, Any]) -> tiny.Trained:
    """One round; the policy writes no token in any of them, it ranks at most."""
    return procedure_runs.run_rounds(seed, NAME, config, **LAUNCH, **SETTINGS)


def measure(seed: int) -> Pairs:
    own, drawn, unpruned = (measure_walks(seed, config) for config in ({}, {"walk": "random"}, {"prune": False}))
    turns = f"heldout/{NAME}/turns"
    return {
        **tiny.accuracies(own, drawn),
        "turns": (own.final(turns), unpruned.final(turns)),
        "without pruning": (own.final("heldout/accuracy"), unpruned.final("heldout/accuracy")),
        "the policy alone": (own.final("heldout/accuracy"), own.heldout[0]["heldout/accuracy"]),
    }


CASE = Case(
    method=NAME,
    parent="procedure",
    claim="A walk by likelihood answers more held-out users than a random walk with the same pruning; pruning saves turns and costs no answers.",
    quantities=(
        Quantity(
            tiny.ACCURACY.name, "held-out accuracy, the parent being a random walk that prunes as well", "higher", 0.02, "two more of a hundred users"
        ),
        Quantity("turns", "turns of a held-out dialogue, the parent asking every question on its way", "lower", 0.1, "one question in ten dialogues"),
        Quantity(
            "without pruning", "held-out accuracy, the parent ranking all next nodes at every question", "higher", 0.02, "two more of a hundred users"
        ),
        Quantity("the policy alone", "held-out accuracy, the parent being the policy without a graph", "higher", 0.02, "two more of a hundred users"),
    ),
    problem="travel costs in the world interview about a dialogue graph, frozen tiny policy, one fact of three in the prompt, half of them reworded",
    measure=measure,
    seeds=3,
    launch={"trainer": "procedure", **LAUNCH},
)
