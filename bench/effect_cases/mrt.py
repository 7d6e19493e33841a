"""Turns paid by progress as well as outcomes, against outcomes alone: length at equal steps, and regret."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"distractors": 1}
DIFFICULTY = "medium"  # always two hops


def measure(seed: int) -> Pairs:
    own, parent = (search_runs.run_search(seed, "mrt", config, OPTIONS, difficulty=DIFFICULTY) for config in ({}, {"alpha": 0.0}))
    return {
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "length": (own.final("heldout/length"), parent.final("heldout/length")),
        "regret": (own.last("mrt/regret", search_runs.LAST), parent.last("mrt/regret", search_runs.LAST)),
    }


CASE = Case(
    method="mrt",
    parent="grpo",
    claim="Turns paid by progress make shorter episodes with less regret, at no lower held-out accuracy.",
    quantities=(
        Quantity("length", "tokens of a held-out episode that the policy wrote", "lower", 0.5, "half a token of some fifteen"),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity(
            "regret",
            "sum over an episode's turns of the share of forced answers that are wrong, last 15 steps",
            "lower",
            0.1,
            "a tenth of a wrong answer",
            by_construction="it is the progress that the method pays for",
        ),
    ),
    problem="two-hop questions with distractors in the world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": DIFFICULTY, "options": OPTIONS}, "training__max_completion_length": 96},
)
