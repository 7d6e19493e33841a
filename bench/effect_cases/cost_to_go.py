"""Best-first search with a fitted cost against breadth first, and against the order by the policy's likelihood: expansions, problems solved."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

TASK = {"name": "rewrites", "difficulty": "hard"}
LAUNCH: dict[str, Any] = {"trainer": "procedure", "task": TASK, "training__max_completion_length": 64}
SETTINGS: dict[str, Any] = {"steps": 1, "every": 1, "heldout": 128, "training__per_device_train_batch_size": 8}
NODES = 48


def measure(seed: int) -> Pairs:
    own, breadth = (tiny.run_train(seed, "cost-to-go", {"weight": weight, "nodes": NODES}, **LAUNCH, **SETTINGS) for weight in (1.0, 0.0))
    likely = tiny.run_train(seed, "dsp-plus", {"lemmas": 0, "nodes": NODES, "cache": False, "attempts": 1}, **LAUNCH, **SETTINGS)
    expanded = own.final("heldout/cost-to-go/expanded")
    return {
        "expanded": (expanded, breadth.final("heldout/cost-to-go/expanded")),
        **tiny.accuracies(own, breadth),
        "against likelihood": (expanded, likely.final("heldout/dsp-plus/expanded")),
        "accuracy against likelihood": (own.final("heldout/accuracy"), likely.final("heldout/accuracy")),
    }


CASE = Case(
    method="cost-to-go",
    parent="procedure",
    claim="A held-out problem is solved with fewer positions expanded than breadth first, and no fewer are solved.",
    quantities=(
        Quantity("expanded", "positions expanded for a held-out problem", "lower", 2.0, "two of some twenty"),
        tiny.ACCURACY,
        Quantity("against likelihood", "the same, the parent ordered by the policy's likelihood", "lower", 2.0, "two of some twenty"),
        Quantity(
            "accuracy against likelihood",
            "held-out accuracy, the parent ordered by the policy's likelihood",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem=f"number paths of 3 or 4 moves, {NODES} expansions at most, frozen tiny policy, head fitted to 512 episodes; the parent is breadth first",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
