"""Results that lose a sentence in training against whole ones, tested where half of the results lose one and where none does."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

CONFIG = {"share": 0.5}
OPTIONS = {"missing": 0.5}  # of held-out episodes, in both arms


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "context-drop", CONFIG, OPTIONS)
    without = search_runs.run_search(seed, "context-drop", {"share": 0.0}, OPTIONS)  # GRPO on whole results
    own_whole, parent_whole = search_runs.run_search(seed, "context-drop", CONFIG), search_runs.run_search(seed)
    return {
        **tiny.accuracies(own, without),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, without),
        "whole results": (own_whole.final("heldout/accuracy"), parent_whole.final("heldout/accuracy")),
    }


CASE = Case(
    method="context-drop",
    parent="grpo",
    claim="Where half of the held-out results lose a sentence, training with losses answers more questions than training without.",
    quantities=(
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity("whole results", "held-out accuracy where nothing is lost", "higher", 0.02, "two more of a hundred problems"),
    ),
    problem="world search, half of the held-out results lose a sentence, tiny policy, 60 steps; the parent trained on whole results",
    measure=measure,
    seeds=3,
    launch={
        "base": "grpo",
        "config": CONFIG,
        "task": {"name": "search", "difficulty": "easy", "options": OPTIONS},
        "training__max_completion_length": 96,
    },
)
