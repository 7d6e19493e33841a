"""PARL-MT on bookings: whole conversations played on progress alone, after training on them, on single turns, and with the full history."""

from functools import partial
from pathlib import Path
from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.methods.worlds.parl_mt import play_conversations
from trainers.tasks.registry import get_task

TASK = {"name": "booking", "difficulty": "medium", "options": {"progress": True}}
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": 40, "training__lr_scheduler_type": "linear"}
STEPS, HELDOUT = 40, 128


def score_conversations(folder: Path) -> float:
    """Share of held-out conversations, played on progress alone, that end with the right booking."""
    conversations = get_task("booking").examples("heldout", HELDOUT, 0, TASK["difficulty"])
    played = play_conversations(conversations, partial(kept_runs.sample_answers, folder=folder, task=TASK, tokens=40))
    return sum(one.is_right for one in played) / len(played)


def keep_arm(seed: int, arm: str, method: str, launch: dict[str, Any]) -> Path:
    return kept_runs.keep_policy(f"parl-{arm}-{seed}", tiny.spec_of(seed, method, steps=STEPS, heldout=0, **launch))


def measure(seed: int) -> Pairs:
    own, single = (score_conversations(keep_arm(seed, arm, name, LAUNCH)) for arm, name in (("progress", "parl-mt"), ("single", "")))
    history = {**LAUNCH, "task": {"name": "booking", "difficulty": TASK["difficulty"]}, "training__max_completion_length": 128}
    full = kept_runs.score_heldout(keep_arm(seed, "history", "", history), history["task"], HELDOUT, 128, "booked")
    return {"final state": (own, single), "against full history": (own, full)}


CASE = Case(
    method="parl-mt",
    parent="grpo",
    claim="conversations on progress alone end with the right booking more often than after training on single turns, as often as with all history",
    quantities=(
        Quantity(
            "final state", "share of held-out conversations with the right final booking", "higher", 0.02, "two more of a hundred conversations"
        ),
        Quantity(
            "against full history",
            "the same, the parent trained and asked with the whole history in its context",
            "higher",
            0.02,
            "two more of a hundred",
        ),
    ),
    problem=f"bookings of three wishes and perhaps a change, tiny policy, {STEPS} steps; the parent is paid for the call of a single turn after the"
    " right progress",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
