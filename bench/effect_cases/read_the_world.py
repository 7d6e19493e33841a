"""GRPO with cross-entropy on the search engine's words against GRPO: does foreseeing results help to search?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

CONFIG = {"weight": 0.1}
NLL, WRITTEN = "read-the-world/nll", "read-the-world/written"


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "read-the-world", CONFIG)
    without = search_runs.run_search(seed, "read-the-world", {"weight": 0.0})  # GRPO with the same measures
    last = search_runs.LAST
    return {
        "cross-entropy": (own.last(NLL, last), without.last(NLL, last)),
        **tiny.accuracies(own, without),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, without),
        "reward on the way": (tiny.mean_of_steps(own, "reward"), tiny.mean_of_steps(without, "reward")),
        "written results": (own.last(WRITTEN, last), without.last(WRITTEN, last)),
    }


CASE = Case(
    method="read-the-world",
    parent="grpo",
    claim="The policy foresees results better, and more of its held-out answers are right after as many steps.",
    quantities=(
        Quantity(
            "cross-entropy",
            "of the world's words in training episodes, nats a token, last 15 of 60 steps",
            "lower",
            0.05,
            "a twentieth of a nat",
            by_construction="it is the term that is added to the loss",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity("reward on the way", "mean training reward over all steps", "higher", 0.02, "two more of a hundred episodes"),
        Quantity("written results", "share of episodes in which the policy writes a result itself, last 15 steps", "lower", 0.02, "two of a hundred"),
    ),
    problem="chained questions in the world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={
        "base": "grpo",
        "config": CONFIG,
        "task": {"name": "search", "difficulty": "easy"},
        "training__max_completion_length": 96,
    },
)
