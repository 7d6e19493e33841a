"""Readers trained with contexts that are folded and unfolded in turn, and readers trained unfolded alone: does folding cost accuracy afterwards?"""

from pathlib import Path
from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.window_reading import EVERY_TURN, score_in_windows

TASK: dict[str, Any] = {"name": "reader", "difficulty": "medium", "options": {"chunks": 4, "windows": 0.1}}
ROOM = 112
LAUNCH: dict[str, Any] = {"base": "dapo", "task": TASK, "training__max_completion_length": ROOM}
STEPS, HELDOUT = 40, 128


def keep_arm(seed: int, mode: str) -> Path:
    name = f"accordion-{mode}-{seed}"
    return kept_runs.keep_policy(name, tiny.spec_of(seed, "accordion-thinking", {"mode": mode}, steps=STEPS, heldout=0, **LAUNCH))


def measure(seed: int) -> Pairs:
    arms = [keep_arm(seed, mode) for mode in ("mixed", "unfolded")]
    folded = [score_in_windows(arm, TASK, HELDOUT, EVERY_TURN) for arm in arms]
    unfolded = [kept_runs.score_heldout(arm, TASK, HELDOUT, ROOM) for arm in arms]
    return {
        "gap": (unfolded[0] - folded[0], unfolded[1] - folded[1]),
        "accuracy folded": (folded[0], folded[1]),
        "accuracy": (unfolded[0], unfolded[1]),
    }


CASE = Case(
    method="accordion-thinking",
    parent="dapo",
    claim="after training on folded and unfolded rollouts in turn, folding a context costs less accuracy than after unfolded ones alone",
    quantities=(
        Quantity("gap", "held-out accuracy unfolded minus folded after each turn", "lower", 0.02, "two of a hundred questions"),
        Quantity("accuracy folded", "held-out accuracy in contexts that hold the memory alone", "higher", 0.02, "two more of a hundred questions"),
        Quantity("accuracy", "held-out accuracy in one context", "higher", 0.02, "two more of a hundred questions"),
    ),
    problem=f"texts of four chunks in the world reader, tiny policy, {STEPS} steps; the parent pays for right answers without a deviation too",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
