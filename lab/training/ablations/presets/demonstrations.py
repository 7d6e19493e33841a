"""What demonstrations should show: habits of a search, or clauses beside a verdict."""

from __future__ import annotations

from lab.training.ablations.budgets import Budget
from lab.training.ablations.factors import Factor, Level
from lab.training.ablations.presets.preset import GridPreset

ARMS = (
    ("behaviours, wrong answers", "behaviours-wrong"),
    ("behaviours, right answers", "behaviours-right"),
    ("right answers", "right"),
    ("any", "random"),
)
BEHAVIOR_PRIMING = GridPreset(
    name="behavior-priming",
    title="Is it habits or right answers that prepare a policy for RL?",
    summary="GRPO after supervised training on search episodes that show four good habits with wrong answers or with right ones, that are right "
    "whatever they show, or any: as many of each, with as many searches. The claim: after GRPO the first two are alike and above the last. Sources, "
    "junk, errors and the tags are rules of the world; the other half of the cold start's demonstrations is the same for all.",
    source="2510.06534",
    recipe="world",
    changes=(
        ("task.name", "sourced_search"),
        ("task.options", {"junk": 0.3, "failures": 0.25, "misprints": 0.3}),
        ("training.max_completion_length", 128),
        ("training.max_steps", 80),
        ("evaluation", {"every": 20, "prompts": 128, "samples": 8}),
    ),
    factors=(Factor("Demonstrations", tuple(Level(name, (("task.options.primed", arm),)) for name, arm in ARMS)),),
    budget=Budget(),
    seeds=5,
)
PRT = GridPreset(
    name="prt",
    title="Do traces that cite clauses teach verdicts better than verdicts do?",
    summary="Supervised training on traces that know the verdict and cite the clauses it stands on, or on verdicts alone, with as many cases of "
    "an invented rule book. Both are read of the same runs: verdicts that are right, and the F1 of the clauses cited. A rule writes the traces, and "
    "the built-in policy learns the book by heart; the paper's models read it.",
    source="2509.23291",
    recipe="cold-start",
    changes=(("task", {"name": "rule_book", "difficulty": "hard"}), ("training.max_steps", 400), ("evaluation.every", 100)),
    factors=(
        Factor("Cases", tuple(Level(f"{cases} cases", (("training.demonstrations", cases),)) for cases in (300, 1000, 4000))),
        Factor("Trained on", (Level("traces"), Level("verdicts alone", (("task.options.verdicts_only", True),)))),
        Factor("Measured", (Level("verdicts", metric="heldout/accuracy"), Level("citation F1", metric="heldout/citations"))),
    ),
    budget=Budget(),
    seeds=5,
)
