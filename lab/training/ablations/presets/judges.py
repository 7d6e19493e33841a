"""Judges of answers, trained on weak and strong generators."""

from __future__ import annotations

from lab.training.ablations.budgets import STEPS, Budget
from lab.training.ablations.factors import Factor, Level
from lab.training.ablations.presets.preset import GridPreset
from trainers.contract.judge_shelf_life import CONTINUAL, SEEN, STRONG, UNSEEN, WEAK

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
