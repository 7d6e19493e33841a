"""Paid verdicts on search results, half of which are noise: are they right more often, and are more questions answered?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"junk": 0.5}
REJECTED = "<judge>no</judge>"


def share_asked_again(made: tiny.Trained) -> float:
    """Of the turns that begin with a no, those that are another search."""
    return search_runs.count_per_text(made, f"{REJECTED}<search>") / max(1e-9, search_runs.count_per_text(made, REJECTED))


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "reseek", options=OPTIONS, world="judged_search")
    parent = search_runs.run_search(seed, options=OPTIONS, world="judged_search")
    return {
        "verdicts": (own.final("heldout/verdict"), parent.final("heldout/verdict")),
        "asked again": (share_asked_again(own), share_asked_again(parent)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="reseek",
    parent="grpo",
    claim="More verdicts on search results are right, and after a no the policy searches again.",
    quantities=(
        Quantity(
            "verdicts",
            "share of right verdicts in held-out episodes",
            "higher",
            0.02,
            "two more of a hundred verdicts",
            by_construction="right verdicts are paid",
        ),
        Quantity("asked again", "share of the turns with a no that are another search, last 15 of 60 steps", "higher", 0.05, "one turn of twenty"),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="chained questions in the world judged_search, half of the searches noise, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "judged_search", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 120},
)
