"""Rooms with the reward shared out over moves by what they gained, or by their entropy, against the same advantage for every move."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

CONFIG = {"weights": "gain"}


def measure(seed: int) -> Pairs:
    own, by_entropy = (search_runs.run_search(seed, "shared-out-reward", config, world="rooms") for config in (CONFIG, {"weights": "entropy"}))
    parent = search_runs.run_search(seed, world="rooms")
    return {
        "speed": (average_accuracy(own), average_accuracy(parent)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "by entropy": (by_entropy.final("heldout/accuracy"), parent.final("heldout/accuracy")),
    }


def average_accuracy(made: tiny.Trained) -> float:
    """Mean held-out accuracy over all evaluations after the first step: the earlier it rises the higher."""
    values = [values["heldout/accuracy"] for step, values in made.heldout.items() if step]
    return sum(values) / len(values)


CASE = Case(
    method="shared-out-reward",
    parent="grpo",
    claim="With the reward shared out by what a move gained, episodes succeed after fewer steps than with the same advantage for every move.",
    quantities=(
        Quantity("speed", "held-out accuracy, mean over the evaluations of the run", "higher", 0.02, "two more of a hundred problems"),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity("by entropy", "held-out accuracy after 60 steps, shared out by entropy", "higher", 0.02, "two more of a hundred problems"),
    ),
    problem="a row of four rooms with a key, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "config": CONFIG, "task": {"name": "rooms", "difficulty": "easy"}, "training__max_completion_length": 136},
)
