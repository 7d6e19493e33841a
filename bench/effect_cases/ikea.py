"""Half of the facts in the weights: does the search rate part between known and unknown questions where fewer searches pay more?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"memorised": 0.5}


def measure_gap(made: tiny.Trained) -> float:
    """Search rate on unknown questions minus that on known ones."""
    unknown, known = (made.last(f"ikea/searched_{kind}", search_runs.LAST) for kind in ("unknown", "known"))
    return unknown - known


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "ikea", {}, OPTIONS)
    parent = search_runs.run_search(seed, "ikea", {"plus": 0.0, "minus": 0.0}, OPTIONS)  # GRPO on the answer, with the same questions
    return {
        "gap of searches": (measure_gap(own), measure_gap(parent)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="ikea",
    parent="grpo",
    claim="Where right answers with fewer searches are worth more, the policy searches for what it does not know rather than for what it knows,"
    " and no fewer held-out answers are right.",
    quantities=(
        Quantity(
            "gap of searches",
            f"share of episodes that search, of unknown minus of known questions, last {search_runs.LAST} of {search_runs.STEPS} steps",
            "higher",
            0.05,
            "five of a hundred episodes",
            by_construction="a right answer earns more with fewer searches",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="chained questions in the world search, half of the people's facts the same in every question, tiny policy, 60 steps; the parent is paid"
    " for the answer alone",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 96},
)
