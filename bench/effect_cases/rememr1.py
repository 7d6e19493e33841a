"""Readers who learn at the end what they have been asked: do they look it up, with steps paid and with the outcome alone?"""

from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.window_reading import EVERY_TURN, score_in_windows

TASK: dict[str, Any] = {"name": "reader", "difficulty": "easy", "options": {"late": 1.0, "windows": 0.5}}
LAUNCH: dict[str, Any] = {"base": "dapo", "task": TASK, "training__max_completion_length": 112}
STEPS, HELDOUT, SEEN = 40, 128, 0.5


def find_first_step(made: tiny.Trained, name: str, least: float) -> float:
    """The first step at which a metric is ``least`` or more; one beyond the last where it never is."""
    steps = [number for number, values in enumerate(made.steps, 1) if values.get(name, 0.0) >= least]
    return float(steps[0] if steps else len(made.steps) + 1)


def measure(seed: int) -> Pairs:
    found: dict[str, list[float]] = {"accuracy": [], "recalls": [], "first": []}
    for alpha in (0.8, 1.0):
        data = tiny.spec_of(seed, "rememr1", {"alpha": alpha}, steps=STEPS, heldout=0, **LAUNCH)
        folder = kept_runs.keep_policy(f"rememr1-{alpha}-{seed}", data)
        made = tiny.read(folder.parent)
        found["accuracy"].append(score_in_windows(folder, TASK, HELDOUT, EVERY_TURN))
        found["recalls"].append(made.last("rememr1/recalls"))
        found["first"].append(find_first_step(made, "rememr1/recalls", SEEN))
    return {name: (own, parent) for name, (own, parent) in found.items()}


CASE = Case(
    method="rememr1",
    parent="dapo",
    claim="with steps paid beside the outcome old memories are looked up earlier and more questions are answered than with the outcome alone",
    quantities=(
        Quantity("first", f"first step at which {SEEN:.0%} of the rollouts look up a memory", "lower", 2.0, "two steps of forty"),
        Quantity("accuracy", "held-out accuracy, each turn in a context with the memory alone", "higher", 0.02, "two more of a hundred questions"),
        Quantity(
            "recalls",
            "share of rollouts that look up a memory, last 5 steps",
            "higher",
            0.05,
            "one of twenty rollouts",
            by_construction="a look-up that finds the answer is paid",
        ),
    ),
    problem=f"texts of two chunks whose topic is said at the end, world reader, tiny policy, {STEPS} steps; the parent is alpha = 1, the outcome on"
    " every step",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
