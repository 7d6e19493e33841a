"""Trained in English alone by GRPO or by SFT: what is a gain in English worth in Esperanto?"""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

STEPS, HELD_OUT = 60, 256
TRAINED, OTHER = "heldout/english", "heldout/esperanto"
TASK = {"name": "two_languages", "difficulty": "easy", "options": {"language": "english"}}
SFT: dict[str, Any] = {"trainer": "sft", "training__learning_rate": 3e-4}
GRPO: dict[str, Any] = {"base": "grpo", "training__lr_scheduler_type": "linear"}


def train_in_english(seed: int, settings: dict[str, Any]) -> list[tuple[float, float]]:
    """Accuracy in English and in Esperanto, measurement by measurement."""
    length = {"training__max_completion_length": 96}
    made = tiny.run_train(seed, steps=STEPS, heldout=HELD_OUT, every=5, task=TASK, **settings, **length)
    return [(values[TRAINED], values[OTHER]) for _, values in sorted(made.heldout.items())]


def find_other_at(curve: list[tuple[float, float]], level: float) -> float:
    """Accuracy in Esperanto where that in English first reached ``level``, on a straight line between measurements."""
    before = curve[0]
    for point in curve:
        if point[0] >= level:
            share = (level - before[0]) / (point[0] - before[0]) if point[0] > before[0] else 1.0
            return before[1] + share * (point[1] - before[1])
        before = point
    raise ValueError("the level was not reached")


def measure(seed: int) -> Pairs:
    curves = [train_in_english(seed, settings) for settings in (GRPO, SFT)]
    level = min(max(trained for trained, _ in curve) for curve in curves)
    own, parent = (find_other_at(curve, level) for curve in curves)
    return {"transfer": (own, parent), "english": (curves[0][-1][0], curves[1][-1][0])}


CASE = Case(
    method="crosslingual-rl",
    parent="sft",
    claim="When both are as good in the language they are trained in, GRPO is better than SFT in the other one.",
    quantities=(
        Quantity(
            "transfer",
            "held-out accuracy in Esperanto when that in English is what both reached, trained in English",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        Quantity("english", "held-out accuracy in English after the same number of steps", "higher", 0.02, "two more of a hundred problems"),
    ),
    problem=f"word problems in two lists of words, tiny policy that has seen both, {STEPS} steps of GRPO or of SFT on right answers",
    measure=measure,
    seeds=3,
)
