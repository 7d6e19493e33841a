"""Readers of a text in short, middling and long chunks: groups over all levels against groups of one level, with the same reward."""

from typing import Any

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.worlds.reader import LEVELS

OPTIONS = {"levels": True}
TASK: dict[str, Any] = {"name": "reader", "difficulty": "easy", "options": OPTIONS}
TOKENS, STEPS, LAST = 144, 40, 10  # LAST: of the steps, those that are looked at
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": TOKENS}


def find_worst_level(made: tiny.Trained) -> float:
    """Share right at the level where it is lowest."""
    return min(made.last(f"framemind/right_{level}", LAST) for level in LEVELS)


def count_turns(made: tiny.Trained) -> float:
    """Mean over the levels."""
    return sum(made.last(f"framemind/turns_{level}", LAST) for level in LEVELS) / len(LEVELS)


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, "framemind", {"spread": spread}, steps=STEPS, **LAUNCH) for spread in (True, False))
    return {
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "accuracy at the worst level": (find_worst_level(own), find_worst_level(parent)),
        "turns": (count_turns(own), count_turns(parent)),
    }


CASE = Case(
    method="framemind",
    parent="grpo",
    claim="With groups over all levels of view more held-out questions are answered than with groups of one level each.",
    quantities=(
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity("accuracy at the worst level", f"share right at the level where it is lowest, last {LAST} steps", "higher", 0.02, "two more of 100"),
        Quantity("turns", f"turns of an episode, mean over the levels, last {LAST} steps", "lower", 0.2, "one turn in five episodes"),
    ),
    problem=f"texts of four lines in chunks of one, two or four, world reader, tiny policy, {STEPS} steps; the parent's groups have one level each",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
