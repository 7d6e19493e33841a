"""The order of retrieval paid beside answer and form, against answer and form alone, on two-hop questions with distractors."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"distractors": 1}
DIFFICULTY = "medium"  # always two hops


def measure(seed: int) -> Pairs:
    own, parent = (search_runs.run_search(seed, "vrag-rl", config, OPTIONS, difficulty=DIFFICULTY) for config in ({}, {"retrieval": 0.0}))
    return {
        "searches before": (own.last("vrag-rl/searches_before", search_runs.LAST), parent.last("vrag-rl/searches_before", search_runs.LAST)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "useful": (own.final("heldout/useful"), parent.final("heldout/useful")),
    }


CASE = Case(
    method="vrag-rl",
    parent="grpo",
    claim="With the order of retrieval paid, fewer searches come before the first needed sentence, and no fewer answers are right.",
    quantities=(
        Quantity(
            "searches before",
            "searches before the first needed sentence in an episode that searches, last 15 of 60 steps; the parent has the same reward without nDCG",
            "lower",
            0.05,
            "one search in twenty episodes",
            by_construction="an earlier place of a needed sentence is paid",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity("useful", "share of held-out searches that found new evidence", "higher", 0.02, "two more of a hundred searches"),
    ),
    problem="two-hop questions with distractors in the world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": DIFFICULTY, "options": OPTIONS}, "training__max_completion_length": 96},
)
