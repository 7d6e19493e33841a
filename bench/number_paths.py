"""Runs on number paths whose demonstrations search in a way that options say, as the ablations of search traces train them."""

from typing import Any

from bench.effect_cases import tiny

STEPS = 60


def train_searcher(seed: int, options: dict[str, Any], **settings: Any) -> tiny.Trained:
    """GRPO after supervised training on such demonstrations."""
    task = {"name": "number_traces", "difficulty": "easy", "options": options}
    given = {"training__max_completion_length": 112, "training__lr_scheduler_type": "linear", **settings}
    return tiny.run_train(seed, base="grpo", steps=STEPS, task=task, **{"heldout": 128, "every": 20, **given})
