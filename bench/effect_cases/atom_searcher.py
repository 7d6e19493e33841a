"""Judged units of thought whose weight falls to 0 against the F1 of the answer alone: is a right answer learnt sooner, and no fewer in the end?"""

from typing import Any

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"thoughts": True}
TOKENS = 128  # of an episode, thoughts included
EARLY = (10, 20, 30)  # of 60 steps


def mean_heldout(made: tiny.Trained, steps: tuple[int, ...]) -> float:
    """Mean held-out accuracy of the measurements after these steps."""
    return sum(made.heldout[step]["heldout/accuracy"] for step in steps) / len(steps)


def measure(seed: int) -> Pairs:
    settings: dict[str, Any] = {"training__max_completion_length": TOKENS, "every": EARLY[0]}
    own = search_runs.run_search(seed, "atom-searcher", {}, OPTIONS, **settings)
    parent = search_runs.run_search(seed, "atom-searcher", {"weight": 0.0}, OPTIONS, **settings)  # GRPO on the F1 of the answer
    return {
        "early accuracy": (mean_heldout(own, EARLY), mean_heldout(parent, EARLY)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="atom-searcher",
    parent="grpo",
    claim="With judged units of thought more held-out questions are answered early in training than with the F1 of the answer alone.",
    quantities=(
        Quantity("early accuracy", "mean held-out accuracy after 10, 20 and 30 of 60 steps", "higher", 0.02, "two more of a hundred problems"),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="chained questions in the world search with thoughts, tiny policy, 60 steps; the parent is the reward without the units",
    measure=measure,
    seeds=3,
    launch={
        "base": "grpo",
        "task": {"name": "search", "difficulty": "easy", "options": OPTIONS},
        "training__max_completion_length": TOKENS,
    },
)
