"""Grids of published studies, ready to be launched: a recipe, its factors, and what its cells are matched at."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.http import Http404, QueryDict

from lab.training.ablations.budgets import REACHED, STEPS, Budget
from lab.training.ablations.factor_text import write_levels
from lab.training.ablations.factors import Factor, Level, apply_changes
from lab.training.ablations.starts import recipe_spec
from trainers.contract.judge_shelf_life import CONTINUAL, SEEN, STRONG, UNSEEN, WEAK

LANGUAGES = ("english", "esperanto")


@dataclass(frozen=True)
class GridPreset:
    """``changes``: of the recipe, before any level. ``source``: where the study was published."""

    name: str
    title: str
    summary: str
    source: str
    recipe: str
    changes: tuple[tuple[str, Any], ...]
    factors: tuple[Factor, ...]
    budget: Budget
    seeds: int


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
JUDGE = [{"name": "judge-shelf-life", "config": {}}]
SHELF_LIFE = GridPreset(
    name="judge-shelf-life",
    title="How long does a judge of answers stay useful?",
    summary="Judges of pairs trained on a weak generator's answers, on a strong one's, or first on those and then on these, by SFT on right verdicts "
    "or by DPO on their own, each right in both orders or not at all. Rules stand for the generators and for the teacher of the paper, and the "
    "built-in policy for its judges.",
    source="2509.23542",
    recipe="world",
    changes=(
        ("training.trainer", "dpo"),
        ("task.name", "verdicts"),
        ("training.max_length", 192),
        ("training.max_completion_length", 72),
        ("training.sampled_prompts", 400),
        ("evaluation.prompts", 256),
        ("evaluation.every", 20),
    ),
    factors=(
        Factor(
            "Method",
            (
                Level(
                    "SFT",
                    (
                        ("training.trainer", "sft"),
                        ("training.learning_rate", 0.0003),
                        ("training.max_length", 192),
                        ("training.demonstrations", 1920),
                        ("methods", JUDGE),
                    ),
                ),
                Level("DPO", (("methods", JUDGE),)),
            ),
        ),
        Factor("Trained on", tuple(Level(name, (("task.options.generator", name),)) for name in (WEAK, STRONG, CONTINUAL))),
        Factor("Measured on", tuple(Level(name, metric=f"heldout/consistent_{name}") for name in (WEAK, STRONG, SEEN, UNSEEN))),
    ),
    budget=Budget(STEPS, 60),
    seeds=5,
)
PRESETS = {preset.name: preset for preset in (CROSSLINGUAL, SHELF_LIFE)}


def write_preset_form(name: str) -> QueryDict:
    """The form of a new grid as the preset fills it in. Raises Http404."""
    preset = PRESETS.get(name)
    if preset is None:
        raise Http404("there is no such preset")
    form = QueryDict(mutable=True)
    form["spec"] = json.dumps(apply_changes(recipe_spec(preset.recipe), preset.changes))
    form["name"], form["seeds"] = preset.name, str(preset.seeds)
    form["budget_kind"], form["budget_value"], form["budget_metric"] = preset.budget.kind, f"{preset.budget.value:g}", preset.budget.metric
    for place, factor in enumerate(preset.factors):
        form[f"factor.{place}.name"], form[f"factor.{place}.levels"] = factor.name, write_levels(factor.levels)
    return form
