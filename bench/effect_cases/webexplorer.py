"""WebExplorer: trained on evolved questions and on plain ones, each measured on blurred and on plain held-out questions."""

from pathlib import Path
from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

TASK = {"name": "entity_search", "difficulty": "easy", "options": {"blurred": 0.5}}
LAUNCH: dict[str, Any] = {
    "base": "grpo",
    "task": TASK,
    "training__max_completion_length": 160,
    "training__prompts": 256,
    "training__lr_scheduler_type": "linear",
}
CONFIG = {"rounds": 2, "samples": 4, "least": 0.0}
STEPS, HELDOUT = 40, 256


def train_explorer(seed: int, rounds: int) -> Path:
    data = tiny.spec_of(seed, "webexplorer", {**CONFIG, "rounds": rounds}, steps=STEPS, heldout=0, **LAUNCH)
    return kept_runs.keep_policy(f"webexplorer-{rounds}-{seed}", data)


def measure(seed: int) -> Pairs:
    arms = [train_explorer(seed, rounds) for rounds in (CONFIG["rounds"], 0)]
    found = {}
    for name, share in (("blurred", 1.0), ("plain", 0.0)):
        task = {**TASK, "options": {"blurred": share}}
        own, parent = (kept_runs.score_heldout(folder, task, HELDOUT, 160) for folder in arms)
        found[f"accuracy on {name} questions"] = (own, parent)
    return found


CASE = Case(
    method="webexplorer",
    parent="grpo",
    claim="trained on evolved questions it answers more blurred questions than trained on plain ones, and plain ones no worse",
    quantities=(
        Quantity(
            "accuracy on blurred questions",
            "held-out accuracy on blurred questions after 40 steps",
            "higher",
            0.02,
            "two more of a hundred questions",
        ),
        Quantity(
            "accuracy on plain questions", "held-out accuracy on plain questions after 40 steps", "higher", 0.02, "two more of a hundred questions"
        ),
    ),
    problem=f"a person to find by two clues, tiny policy, {STEPS} steps on 256 questions, which the parent sees as they began",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "config": CONFIG},
)
