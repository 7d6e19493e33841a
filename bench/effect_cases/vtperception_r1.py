"""Facts described before they are used: with coverage and support paid, is less made up, and are no fewer answers right?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.worlds.described_facts import DescribedFacts

DIFFICULTY = "hard"
OFF = {"coverage": 0.0, "support": 0.0, "repetition": 0.0}


def measure(seed: int) -> Pairs:
    own, parent = (
        search_runs.run_search(seed, "vtperception-r1", config, world="described_facts", difficulty=DIFFICULTY, base="dapo") for config in ({}, OFF)
    )
    return {
        "invented": (own.last("vtperception-r1/invented", search_runs.LAST), parent.last("vtperception-r1/invented", search_runs.LAST)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "covered": (own.final("heldout/covered"), parent.final("heldout/covered")),
    }


CASE = Case(
    method="vtperception-r1",
    parent="dapo",
    claim="With coverage and support paid beside answer and form, descriptions hold more of what is needed, less is made up, and no fewer held-out"
    " answers are right.",
    quantities=(
        Quantity(
            "invented",
            f"share of the facts told that are not true, last {search_runs.LAST} steps; the parent is paid for answer and form",
            "lower",
            0.05,
            "one fact of twenty",
            by_construction="a fact that the prompt tells otherwise costs the support",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity(
            "covered",
            "share of the facts needed that held-out descriptions hold",
            "higher",
            0.05,
            "one fact of twenty",
            by_construction="coverage is paid in bands",
        ),
    ),
    problem=f"two edges and a feature of a graph whose facts stand in the prompt, tiny policy, {search_runs.STEPS} steps",
    measure=measure,
    seeds=3,
    launch={
        "base": "dapo",
        "task": {"name": "described_facts", "difficulty": DIFFICULTY},
        "training__max_completion_length": DescribedFacts.episode_tokens,
    },
)
