"""A policy that searches its own memory: do answers and form rise together, and is it no worse where a real engine answers?"""

from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.search_runs import ACCURACY_AT_WRITTEN, compare_at_written_tokens

OPTIONS = {"alone": True, "thoughts": True, "memorised": 1.0, "hits": 1}
TASK: dict[str, Any] = {"name": "search", "difficulty": "hard", "options": OPTIONS}
ANSWERED: dict[str, Any] = {**TASK, "options": {**OPTIONS, "alone": False}}  # the same questions, with an engine that answers
TOKENS, STEPS, HELDOUT, LAST = 128, 60, 128, 15
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": TOKENS}


def measure(seed: int) -> Pairs:
    made, answered = list[tiny.Trained](), list[float]()
    for name, config in (("ssrl", {}), ("ssrl-answer", {"form": 0.0, "mask": False})):  # the parent: GRPO on the answer, results in the loss
        folder = kept_runs.keep_policy(f"{name}-{seed}", tiny.spec_of(seed, "ssrl", config, steps=STEPS, heldout=HELDOUT, **LAUNCH))
        made.append(tiny.read(folder.parent))
        answered.append(kept_runs.score_heldout(folder, ANSWERED, HELDOUT, TOKENS))
    own, parent = made
    return {
        **tiny.accuracies(own, parent),
        ACCURACY_AT_WRITTEN.name: compare_at_written_tokens(own, parent),
        "accuracy with an engine": (answered[0], answered[1]),
        "form": (own.last("ssrl/form", LAST), parent.last("ssrl/form", LAST)),
    }


CASE = Case(
    method="ssrl",
    parent="grpo",
    claim="With the form paid and results left out of the loss more held-out questions are answered than with the answer alone, also where an engine"
    " answers.",
    quantities=(
        tiny.ACCURACY,
        ACCURACY_AT_WRITTEN,
        Quantity(
            "accuracy with an engine",
            "held-out accuracy of the same policy where the world's engine answers its searches",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        Quantity(
            "form",
            f"graded form, mean of the last {LAST} of {STEPS} steps",
            "higher",
            0.05,
            "a twentieth of its range",
            by_construction="the reward pays for the form",
        ),
    ),
    problem=f"chained questions about facts in the weights, world search without an engine, tiny policy, {STEPS} steps; the parent is paid for the"
    " answer alone and trains on all it writes",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
