"""Turns paid by what they add to the belief in the gold answer against outcomes alone, on two-hop questions."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"distractors": 1}
DIFFICULTY = "medium"  # always two hops


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "igpo", {}, OPTIONS, difficulty=DIFFICULTY)
    parent = search_runs.run_search(seed, options=OPTIONS, difficulty=DIFFICULTY)
    silent = tiny.mean_of_steps(own, "igpo/silent"), tiny.mean_of_steps(own, "igpo/silent_by_outcome")
    return {
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "evidence": (own.final("heldout/evidence"), parent.final("heldout/evidence")),
        "silent": silent,
        # A step in which no search of a kind was made says nothing of that kind.
        "gain": (own.last("igpo/gain_useful", search_runs.STEPS), own.last("igpo/gain_useless", search_runs.STEPS)),
    }


CASE = Case(
    method="igpo",
    parent="grpo",
    claim="Turns paid by information gain answer more held-out questions than outcomes alone, and leave fewer groups without a gradient.",
    quantities=(
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity("evidence", "share of the sentences needed that held-out searches found", "higher", 0.02, "two more of a hundred sentences"),
        Quantity(
            "silent",
            "share of groups without a gradient, mean of all steps; the parent: of the same groups by their outcomes alone",
            "lower",
            0.05,
            "one of twenty groups",
            by_construction="a second reward tells members apart whose outcomes are equal",
        ),
        Quantity(
            "gain",
            "mean information gain of searches that found new evidence; the parent: of searches that found none",
            "higher",
            0.02,
            "two hundredths of belief",
        ),
    ),
    problem="two-hop questions with distractors in the world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": DIFFICULTY, "options": OPTIONS}, "training__max_completion_length": 96},
)
