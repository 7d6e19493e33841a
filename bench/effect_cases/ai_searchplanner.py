"""A planner charged for its searches, at two prices: how many searches are left, and how often is the frozen reader right?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"reader": True, "known": 0.5}
LOW, HIGH = 0.3, 1.0  # lambda


def measure(seed: int) -> Pairs:
    own, dear = (search_runs.run_search(seed, "ai-searchplanner", {"cost_weight": price}, OPTIONS) for price in (LOW, HIGH))
    parent = search_runs.run_search(seed, options=OPTIONS)
    queries = [search_runs.count_per_text(made, "<search>") for made in (own, parent, dear)]
    return {
        "queries": (queries[0], queries[1]),
        "queries at the high price": (queries[2], queries[0]),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="ai-searchplanner",
    parent="grpo",
    claim="The dearer a search is, the fewer there are, and the reader is right as often at a low price as without one.",
    quantities=(
        Quantity(
            "queries",
            "searches per episode, last 15 of 60 steps, lambda 0.3 against no price",
            "lower",
            0.1,
            "one search in ten episodes",
            by_construction="searches are charged",
        ),
        Quantity(
            "queries at the high price",
            "searches per episode, last 15 of 60 steps, lambda 1 against 0.3",
            "lower",
            0.1,
            "one search in ten episodes",
            by_construction="searches are charged",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="searches for a frozen reader that knows half of the sentences, world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 96},
)
