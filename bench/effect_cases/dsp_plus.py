"""A best-first search with two lemmas drafted against the same search without: positions expanded, and problems solved."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

TASK = {"name": "rewrites", "difficulty": "hard"}
LAUNCH: dict[str, Any] = {"trainer": "procedure", "task": TASK, "training__max_completion_length": 64}
SETTINGS: dict[str, Any] = {"steps": 1, "every": 1, "heldout": 128, "training__per_device_train_batch_size": 8}
NODES = 48


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, "dsp-plus", {"lemmas": lemmas, "nodes": NODES, "cache": False}, **LAUNCH, **SETTINGS) for lemmas in (2, 0))
    expanded = tuple(made.final("heldout/dsp-plus/expanded") for made in (own, parent))
    return {"expanded": (expanded[0], expanded[1]), **tiny.accuracies(own, parent)}


CASE = Case(
    method="dsp-plus",
    parent="procedure",
    claim="With two lemmas a held-out problem is solved with half of the positions expanded, and no fewer are solved.",
    quantities=(
        Quantity("expanded", "positions expanded for a held-out problem", "lower", 2.0, "two of some twenty"),
        tiny.ACCURACY,
    ),
    problem=f"number paths of 3 or 4 moves, {NODES} expansions at most, frozen tiny policy, a planner that does not err; the parent drafts no lemmas",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
