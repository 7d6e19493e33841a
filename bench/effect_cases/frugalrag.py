"""Stopping where exploration had enough: fewer searches that nothing needs, with what is needed still found?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"reader": True}


def count_unneeded(made: tiny.Trained) -> float:
    """Searches away from as many as there are sentences that the question needs, which it asks for with one "of" each."""
    newest = max(rollout["step"] for rollout in made.rollouts)
    rows = [rollout for rollout in made.rollouts if rollout["step"] > newest - search_runs.LAST]
    return sum(abs(row["text"].count("<search>") - row["prompt"].count(" of ")) for row in rows) / len(rows)


def measure(seed: int) -> Pairs:
    own, parent = search_runs.run_search(seed, "frugalrag", options=OPTIONS), search_runs.run_search(seed, options=OPTIONS)
    return {
        "distance": (count_unneeded(own), count_unneeded(parent)),
        "recall": (own.final("heldout/evidence"), parent.final("heldout/evidence")),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="frugalrag",
    parent="grpo",
    claim="The policy stops nearer to where it has all that is needed, without the reward of an answer, and finds as much of it.",
    quantities=(
        Quantity(
            "distance",
            "searches per episode away from as many as are needed, last 15 of 60 steps",
            "lower",
            0.1,
            "one search in ten episodes",
            by_construction="stops are paid by their distance to where exploration had enough",
        ),
        Quantity("recall", "share of the needed sentences that held-out episodes find", "higher", 0.02, "two more of a hundred sentences"),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="searches for a frozen reader, world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 96},
)
