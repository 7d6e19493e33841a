"""Transfer between languages."""

from __future__ import annotations

from lab.training.ablations.budgets import REACHED, Budget
from lab.training.ablations.factors import Factor, Level
from lab.training.ablations.presets.preset import GridPreset

LANGUAGES = ("english", "esperanto")
CROSSLINGUAL = GridPreset(
    name="crosslingual-rl",
    title="Does a gain in one language carry over to another?",
    summary="SFT on right answers and GRPO on their rewards, each in one of two languages, measured in both at the same accuracy in the trained one. "
    "Two lists of words stand for the languages of the paper, and the built-in policy for its 3B model; what share of the reasoning is in which "
    "language is not measured, since the working is in digits.",
    source="2509.23657",
    recipe="world",
    changes=(
        ("task.name", "two_languages"),
        ("training.max_completion_length", 96),
        ("training.max_steps", 60),
        ("evaluation.every", 5),
    ),
    factors=(
        Factor("Method", (Level("SFT", (("training.trainer", "sft"), ("training.learning_rate", 0.0003))), Level("GRPO"))),
        Factor("Trained on", tuple(Level(language, (("task.options.language", language),)) for language in LANGUAGES)),
        Factor("Measured in", tuple(Level(language, metric=f"heldout/{language}") for language in LANGUAGES)),
    ),
    budget=Budget(REACHED, 0.6, "heldout/trained"),
    seeds=5,
)
