"""What a reward should cost."""

from __future__ import annotations

from lab.training.ablations.budgets import STEPS, Budget
from lab.training.ablations.factors import Factor, Level
from lab.training.ablations.presets.preset import GridPreset

SHIELD = GridPreset(
    name="semanticshield",
    title="Does a dearer error become rarer?",
    summary="Fake users are told from real ones while an attack that is missed costs as much as a false alarm, or a quarter more; three in ten "
    "histories leave open what their user is. The members of a group have the same label, so the cost can hardly show where advantages are divided "
    "by the group's deviation, as published; without that division it can.",
    source="2509.24961",
    recipe="semanticshield",
    changes=(("evaluation.prompts", 512),),
    factors=(
        Factor("Missed attack", (Level("-1.25"), Level("-1", (("task.rewards.caught", 0.0),)))),
        Factor("Divided by", (Level("deviation"), Level("nothing", (("base.name", "dr-grpo"),)))),
        Factor("Users judged right", (Level("fake", metric="heldout/caught"), Level("real", metric="heldout/cleared"))),
    ),
    budget=Budget(STEPS, 80),
    seeds=5,
)
