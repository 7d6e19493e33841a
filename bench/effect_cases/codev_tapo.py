"""Judged outputs of searches paid beside the right answer, against the right answer alone, on two-hop questions with distractors."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"distractors": 1}
DIFFICULTY = "medium"  # always two hops


def measure(seed: int) -> Pairs:
    arms = ({}, {"tools": 0.0, "penalty": 0.0})
    own, parent = (search_runs.run_search(seed, "codev-tapo", config, OPTIONS, difficulty=DIFFICULTY) for config in arms)
    names = {"calls with evidence": "codev-tapo/evidence", "right without evidence": "codev-tapo/unfaithful_and_right"}
    return {
        **{name: (own.last(metric, search_runs.LAST), parent.last(metric, search_runs.LAST)) for name, metric in names.items()},
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "evidence": (own.final("heldout/evidence"), parent.final("heldout/evidence")),
    }


CASE = Case(
    method="codev-tapo",
    parent="grpo",
    claim="More of the calls give evidence, and fewer answers are right without any, while no fewer answers are right.",
    quantities=(
        Quantity(
            "calls with evidence",
            "share of the searches that found a needed sentence, last 15 of 60 steps",
            "higher",
            0.05,
            "one search of twenty",
            by_construction="what searches find is paid",
        ),
        Quantity(
            "right without evidence", "share of episodes that are right and found nothing needed, last 15 of 60 steps", "lower", 0.02, "one of 50"
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity("evidence", "share of the sentences needed that held-out searches found", "higher", 0.02, "two more of a hundred sentences"),
    ),
    problem="two-hop questions with distractors in the world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": DIFFICULTY, "options": OPTIONS}, "training__max_completion_length": 96},
)
