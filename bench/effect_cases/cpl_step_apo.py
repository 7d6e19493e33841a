"""Step pairs of a tree search with margins as large as their values' gap, against plain DPO on the same pairs."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

LAUNCH: dict[str, Any] = {
    "trainer": "dpo",
    "task": {"name": "rewrites", "difficulty": "medium"},
    "training__max_completion_length": 64,
    "training__max_length": 128,
    "training__beta": 0.3,
    "training__sampled_prompts": 200,
}
LAST = 10


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, "cpl-step-apo", {"alpha": alpha}, **LAUNCH) for alpha in (1.0, 0.0))
    correlation = tuple(made.last("cpl-step-apo/correlation", LAST) for made in (own, parent))
    return {"correlation": (correlation[0], correlation[1]), **tiny.budgeted_accuracies(own, parent)}


CASE = Case(
    method="cpl-step-apo",
    parent="dpo",
    claim="With margins from the values the implicit gaps follow the gaps of the values more closely, and more held-out problems are solved.",
    quantities=(
        Quantity(
            "correlation",
            f"correlation of implicit and value gaps within a batch, last {LAST} steps",
            "higher",
            0.1,
            "a tenth of its range",
            by_construction="the margin is the gap of the values",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="number paths of 2 or 3 moves, step pairs of 200 searched problems, tiny policy, 40 steps; the parent's pairs are the same",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
