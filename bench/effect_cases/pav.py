"""Steps paid by a prover's advantages against outcomes alone: a planted sub-sequence with exact values, and a search world."""

from bench import planted_sequence, search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"distractors": 1}
DIFFICULTY = "medium"  # always two hops


def measure(seed: int) -> Pairs:
    updates = planted_sequence.count_updates(seed, 1.0, 4)
    own, parent = (search_runs.run_search(seed, "pav", config, OPTIONS, difficulty=DIFFICULTY) for config in ({}, {"alpha": 0.0}))
    return {
        "updates": (updates, planted_sequence.count_updates(seed, 0.0, 4)),
        "against the policy as prover": (updates, planted_sequence.count_updates(seed, 1.0, 1)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="pav",
    parent="grpo",
    claim="With the advantages of a prover a policy needs fewer updates to find a planted sub-sequence than with the outcome alone.",
    quantities=(
        Quantity("updates", "updates until 90 % of words hold the planted letters", "lower", 10, "a tenth of a hundred updates"),
        Quantity(
            "against the policy as prover",
            "updates until 90 % of words hold the planted letters; the parent with K = 1",
            "lower",
            10,
            "a tenth of a hundred updates",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="5 planted letters in words of 10 from an alphabet of 15, exact values; two-hop questions in the world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": DIFFICULTY, "options": OPTIONS}, "training__max_completion_length": 96},
    changed="every arm solved the first planted problem in under 30 updates; the chance of a planted letter at the start was lowered",
)
