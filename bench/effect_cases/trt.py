"""Rounds with a list of wrong answers against majority vote at equal tokens, and against the same checked rounds without a list."""

from typing import Any

from bench import procedure_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.equal_tokens import values_at_equal_tokens

TASK = {"name": "rewrites", "difficulty": "easy", "options": {"lists": True}}
SETTINGS: dict[str, Any] = {
    "task": TASK,
    "steps": 1,
    "every": 1,
    "heldout": 256,
    "training__per_device_train_batch_size": 8,
    "training__max_completion_length": 64,
}
ROUNDS = 4
BUDGETS = (1, 2, 4, 8)  # answers of the vote: the tokens of the procedure lie between them


def measure_arm(seed: int, config: dict[str, Any]) -> tuple[float, float]:
    """Tokens written for a held-out answer, and the accuracy."""
    made = procedure_runs.run_rounds(seed, "trt", config, **SETTINGS)
    return made.final("heldout/written"), made.final("heldout/accuracy")


def measure(seed: int) -> Pairs:
    own, unlisted = (measure_arm(seed, {"rounds": ROUNDS, "kept": kept}) for kept in (2, 0))
    vote = [measure_arm(seed, {"rounds": count, "select": "vote"}) for count in BUDGETS]
    return {
        "accuracy against a vote": values_at_equal_tokens([own], vote),
        tiny.ACCURACY.name: (own[1], vote[BUDGETS.index(ROUNDS)][1]),
        "against no list": (own[1], unlisted[1]),
    }


CASE = Case(
    method="trt",
    parent="procedure",
    claim="Four rounds of checked answers with a list of wrong ones solve more held-out problems than a vote of as many tokens, and than no list.",
    quantities=(
        Quantity(
            "accuracy against a vote",
            "held-out accuracy, the parent being the most frequent answer of as many generated tokens",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        Quantity(
            tiny.ACCURACY.name,
            "held-out accuracy, the parent being the most frequent of four answers, which takes more tokens: a checked answer ends the rounds",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        Quantity(
            "against no list",
            "held-out accuracy, the parent checking its answers in as many rounds without a list of wrong ones",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem="number paths in the world rewrites, frozen tiny policy, 4 rounds a problem",
    measure=measure,
    seeds=3,
)
