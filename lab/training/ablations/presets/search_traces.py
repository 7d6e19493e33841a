"""Demonstrations that are searches: dead ends before RL, one long answer or several short ones, cloning or verification."""

from __future__ import annotations

from typing import Any

from lab.training.ablations.budgets import Budget
from lab.training.ablations.factors import Factor, Level
from lab.training.ablations.presets.preset import GridPreset

CONTENTS = (("right", "right"), ("wrong ends", "wrong"), ("shuffled", "shuffled"))
NUMBER_TRACES: tuple[tuple[str, Any], ...] = (
    ("task.name", "number_traces"),
    ("training.max_completion_length", 112),
    ("training.max_steps", 60),
    ("evaluation.every", 20),
)
HOW_MUCH_BACKTRACK = GridPreset(
    name="how-much-backtrack",
    title="How many dead ends should demonstrations have before RL?",
    summary="GRPO after supervised training on searches with so many dead ends, on puzzles of so many moves; the traces "
    "are right, end wrong or are shuffled. "
    "The claims: longer puzzles want more dead ends, and after GRPO shuffled traces are nearly as good as right ones. Number paths stand for the "
    "eight tasks of the paper, the cold start of the built-in policy for its supervised stage.",
    source="2505.24273",
    recipe="world",
    changes=NUMBER_TRACES,
    factors=(
        Factor("Contents", tuple(Level(name, (("task.options.contents", contents),)) for name, contents in CONTENTS)),
        Factor("Dead ends", tuple(Level(f"{count}", (("task.options.dead_ends", count),)) for count in (0, 1, 2, 4))),
        Factor("Moves", tuple(Level(f"{moves} moves", (("task.options.moves", moves),)) for moves in (2, 3, 4))),
    ),
    budget=Budget(),
    seeds=3,
)
TO_BACKTRACK_OR_NOT = GridPreset(
    name="to-backtrack-or-not",
    title="One long search, or several short answers?",
    summary="Policies that search before they answer and policies that answer at once, measured with as many answers as so many tokens are enough "
    "for, before GRPO and after it. The claims: at equal tokens direct answers win before, and searching gains more. What is measured is pass@n, "
    "unbiased, from 32 answers to each held-out prompt; tokens stand for the floating-point operations of the paper.",
    source="2504.07052",
    recipe="world",
    changes=(*NUMBER_TRACES, ("evaluation", {"every": 0, "prompts": 64, "samples": 32})),
    factors=(
        Factor("Moves", tuple(Level(f"{moves} moves", (("task.options.moves", moves),)) for moves in (3, 4))),
        Factor(
            "Start",
            (Level("direct answers", (("task.options.answers_only", True),)), Level("4 dead ends", (("task.options.dead_ends", 4),))),
        ),
        Factor(
            "Measured in",
            (
                Level("one answer", metric="heldout/accuracy"),
                *(Level(f"{tokens} tokens", metric=f"heldout/pass-within-{tokens}") for tokens in (128, 256)),
            ),
        ),
    ),
    budget=Budget(),
    seeds=5,
)
CLONING: tuple[tuple[str, Any], ...] = (
    ("training.trainer", "sft"),
    ("training.learning_rate", 0.0003),
    ("training.max_length", 160),
    ("methods", [{"name": "vb-vs-vf", "config": {"prompts": 480, "samples": 8}}]),
)
VB_VS_VF = GridPreset(
    name="vb-vs-vf",
    title="When does verification beat cloning?",
    summary="SFT on the policy's own right samples and GRPO with the same verifier on as many samples, for several budgets of tokens, from a policy "
    "whose right traces are alike and from one whose are varied. The claims: the gap grows with the budget, and where right samples differ and "
    "rewards are not concentrated. Both are measured on 64 answers to each held-out prompt: heldout/heterogeneity, heldout/anti-concentration.",
    source="2502.12118",
    recipe="world",
    changes=(
        *NUMBER_TRACES,
        ("task.options", {"moves": 3, "dead_ends": 2}),
        ("evaluation", {"every": 0, "prompts": 64, "samples": 64}),
    ),
    factors=(
        Factor("Right traces", (Level("alike"), Level("varied", (("task.options.varied", True), ("task.options.dead_ends", 4))))),
        Factor("Learning by", (Level("cloning", CLONING), Level("verification"))),
        Factor("Budget", tuple(Level(f"{tokens} tokens", (("training.max_completion_length", tokens),)) for tokens in (48, 72, 112))),
    ),
    budget=Budget(),
    seeds=5,
)
