"""A user who likes short answers: is that learnt from clicks within twenty rounds, and only with a bonus for what is not known?"""

from typing import Any

from bench import procedure_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

ROUNDS = 20
SETTINGS: dict[str, Any] = {
    "task": {"name": "mini_gsm", "difficulty": "easy"},
    "steps": ROUNDS,
    "every": ROUNDS,
    "heldout": 64,
    "training__per_device_train_batch_size": 8,
    "training__num_generations": 2,
    "training__max_completion_length": 48,
}


def measure(seed: int) -> Pairs:
    own, same = (procedure_runs.run_rounds(seed, "t-pop", config, **SETTINGS) for config in ({}, {"bonus": 0.0}))
    return {
        "pair accuracy": (own.steps[-1]["t-pop/pair_accuracy"], same.steps[-1]["t-pop/pair_accuracy"]),
        "length": (own.final("heldout/length"), same.final("heldout/length")),
        **tiny.accuracies(own, same),
    }


CASE = Case(
    method="t-pop",
    parent="procedure",
    claim="Within 20 rounds the head ranks held-out pairs as the user does and held-out answers become shorter; without the bonus both arms are the"
    " same and nothing is learnt.",
    quantities=(
        Quantity(
            "pair accuracy",
            "share of held-out pairs that the head ranks as the user does after the last round; the parent has no bonus",
            "higher",
            0.05,
            "one pair of twenty",
        ),
        Quantity(
            "length",
            "tokens of a held-out answer; the parent has no bonus",
            "lower",
            1.0,
            "one token",
            by_construction="the head that the user's clicks fit is added to the scores of tokens",
        ),
        Quantity(tiny.ACCURACY.name, "held-out accuracy; the parent has no bonus", "higher", 0.02, "two more of a hundred problems"),
    ),
    problem=f"word problems, a rule that likes short answers as the user, frozen tiny policy, {ROUNDS} rounds of 4 prompts",
    measure=measure,
    seeds=3,
    changed="accuracy was compared with plain sampling (.64 against .34 of three seeds), which measures greedy decoding: the parent has no bonus now",
)
