"""Rubrics learned from preferences, against rubrics paid for the preference alone and against one rubric for all queries."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.contract.spec import TaskChoice
from trainers.tasks.registry import load_chosen_task
from trainers.worlds.criteria import prefers_first
from trainers.worlds.plots import MOODS

TASK: dict[str, Any] = {"name": "stories", "difficulty": "easy", "options": {"write": "rubric"}, "rewards": {"reader": 0.0}}
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": 48}
STEPS, HELDOUT = 60, 128


def score_fixed_rubric() -> float:
    """Share of the held-out pairs in which a rubric of all criteria with equal weights prefers as readers do: the longer story, where one is."""
    choice = TaskChoice.model_validate(TASK)
    examples = load_chosen_task(choice).examples("heldout", HELDOUT, 0, choice.difficulty)
    return sum(prefers_first(dict.fromkeys(MOODS, 1), example.data["pair"]) for example in examples) / len(examples)


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, name, steps=STEPS, heldout=HELDOUT, **LAUNCH) for name in ("query-rubrics", ""))
    return {
        "fixed rubric": (own.final("heldout/accuracy"), score_fixed_rubric()),
        **tiny.budgeted_accuracies(own, parent),
        "weights": (own.final("heldout/reader"), parent.final("heldout/reader")),
    }


CASE = Case(
    method="query-rubrics",
    parent="grpo",
    claim="learned rubrics prefer held-out stories as readers do more often than a fixed rubric, and come near the weights that nobody tells",
    quantities=(
        Quantity(
            "fixed rubric",
            "share of held-out pairs preferred as readers do; the parent: by all criteria with equal weights",
            "higher",
            0.02,
            "two more of a hundred pairs",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
        Quantity("weights", "cosine of a held-out rubric's weights and the readers', which no arm is paid for", "higher", 0.02, "two hundredths"),
    ),
    problem=f"rubrics of two criteria for stories of six genres, tiny policy, {STEPS} steps; the parent is paid for the preference alone",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
