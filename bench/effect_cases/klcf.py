"""Profiles of which half can be known: does an answer tell what is known without making things up where both recall and truth are paid?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.worlds.profiles import Profiles

ALONE = {"precision": 0.0, "general": 0.0}
RECALL, TRUTH = {**ALONE, "truth": 0.0}, {**ALONE, "recall": 0.0}


def measure(seed: int) -> Pairs:
    own, recall, truth = (search_runs.run_search(seed, "klcf", config, world="profiles") for config in ({}, RECALL, TRUTH))
    return {
        "false claims": (own.last("klcf/false_claims", search_runs.LAST), recall.last("klcf/false_claims", search_runs.LAST)),
        **tiny.accuracies(own, recall),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, recall),
        "accuracy against truth": (own.final("heldout/accuracy"), truth.final("heldout/accuracy")),
        "recall against truth": (own.final("heldout/recall"), truth.final("heldout/recall")),
    }


CASE = Case(
    method="klcf",
    parent="grpo",
    claim="Paid for recall alone answers make more false claims, paid for truth alone they tell less; paid for both they tell what is known and no"
    " more.",
    quantities=(
        Quantity(
            "false claims",
            f"false claims of an answer, last {search_runs.LAST} of {search_runs.STEPS} steps; the parent is paid for recall alone",
            "lower",
            0.1,
            "one claim in ten answers",
            by_construction="the truth of all claims is paid",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity(
            "accuracy against truth",
            "held-out accuracy after the same number of steps, the parent being paid for truth alone",
            "higher",
            0.02,
            "two more of a hundred questions",
        ),
        Quantity(
            "recall against truth",
            "share of what can be known that held-out answers tell right, the parent being paid for truth alone",
            "higher",
            0.05,
            "one fact of twenty",
            by_construction="the recall of what the first policy knows is paid",
        ),
    ),
    problem=f"facts of a person told from memory, half of those asked for the same in every question, tiny policy, {search_runs.STEPS} steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "profiles", "difficulty": "easy"}, "training__max_completion_length": Profiles.episode_tokens},
)
