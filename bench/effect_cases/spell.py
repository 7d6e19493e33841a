"""SPELL over facts in the prompt: does the questioner find questions that are answered half of the time, and need more facts, as it goes on?"""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

LAUNCH: dict[str, Any] = {
    "base": "dapo",
    "task": {"name": "graph_questions", "difficulty": "medium", "options": {"in_context": True, "ask": "answer"}},
    "training__max_completion_length": 64,
    "training__lr_scheduler_type": "linear",
    "training__prompts": 64,  # each is met again, so that what was solved is remembered
}
CONFIG = {"votes": 4}
STEPS, FIRST, LAST = 60, 5, 10


def measure_ends(made: tiny.Trained, name: str) -> tuple[float, float]:
    """Mean over the last steps, and over the first."""
    values = [step[name] for step in made.steps if name in step]
    return sum(values[-LAST:]) / len(values[-LAST:]), sum(values[:FIRST]) / len(values[:FIRST])


def measure(seed: int) -> Pairs:
    own, parent = tiny.run_train(seed, "spell", CONFIG, steps=STEPS, **LAUNCH), tiny.run_train(seed, steps=STEPS, **LAUNCH)
    return {
        "away from half": measure_ends(own, "spell/away_from_half"),
        "needed": measure_ends(own, "spell/needed"),
        **tiny.budgeted_accuracies(own, parent),
    }


CASE = Case(
    method="spell",
    parent="dapo",
    claim="questions come to be answered half of the time, and need more facts",
    quantities=(
        Quantity(
            "away from half",
            f"distance of a question's share of right answers from one half, last {LAST} steps against the first {FIRST} of the same run",
            "lower",
            0.05,
            "one answer in twenty",
            by_construction="it is what pays a question",
        ),
        Quantity("needed", "facts that a question needs, at the same places", "higher", 0.1, "one fact more in ten questions"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem=f"questions over facts in the prompt, tiny policy, {STEPS} steps; DAPO is trained on the world's own questions",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "config": CONFIG},
)
