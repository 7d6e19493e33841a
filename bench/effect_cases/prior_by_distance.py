"""A tree search whose prior fades with the distance to the training prompts, against the full prior and against none: positions expanded."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

TASK = {"name": "rewrites", "difficulty": "hard"}
LAUNCH: dict[str, Any] = {"trainer": "procedure", "task": TASK, "training__max_completion_length": 64}
SETTINGS: dict[str, Any] = {"steps": 1, "every": 1, "heldout": 128, "training__per_device_train_batch_size": 8}
NODES = 24
PREFIX = "heldout/prior-by-distance"


def measure(seed: int) -> Pairs:
    own, full, flat = (
        tiny.run_train(seed, "prior-by-distance", {"blend": blend, "nodes": NODES}, **LAUNCH, **SETTINGS) for blend in ("distance", "prior", "none")
    )
    far, near = f"{PREFIX}/expanded_far", f"{PREFIX}/expanded_near"
    return {
        "far": (own.final(far), full.final(far)),
        "near": (own.final(near), full.final(near)),
        **tiny.accuracies(own, full),
        "against no prior": (own.final(f"{PREFIX}/expanded"), flat.final(f"{PREFIX}/expanded")),
    }


CASE = Case(
    method="prior-by-distance",
    parent="procedure",
    claim="Far puzzles take fewer expansions than with the full prior, and near ones no more.",
    quantities=(
        Quantity("far", "positions expanded for a held-out puzzle that is far from the training prompts", "lower", 1.0, "one of some ten"),
        Quantity("near", "positions expanded for a held-out puzzle that is near to them", "lower", 1.0, "one of some ten"),
        tiny.ACCURACY,
        Quantity("against no prior", "positions expanded for a held-out puzzle, the parent without a prior", "lower", 1.0, "one of some ten"),
    ),
    problem=f"number paths of 3 or 4 moves, {NODES} expansions at most, frozen tiny policy; the parent has the full prior",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
