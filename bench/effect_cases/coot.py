"""Roll-backs with guidance against plain sampling, and against as many tokens of roll-backs without guidance."""

from typing import Any

from bench import procedure_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.equal_tokens import values_at_equal_tokens

TASK = {"name": "stories", "difficulty": "easy"}
SETTINGS: dict[str, Any] = {
    "task": TASK,
    "steps": 1,
    "every": 1,
    "heldout": 512,
    "training__per_device_train_batch_size": 8,
    "training__max_completion_length": 104,
    "evaluation__temperature": 1.0,
}
SHORT_TURNS: dict[str, Any] = {"min_tokens": 0, "consecutive": 1, "guided_tokens": 2}
TRIES = 1
BUDGETS = (0, 1, 2, 3)  # roll-backs of a turn without guidance: the tokens of those with guidance lie between them
FORBIDDEN = "heldout/coot/forbidden"


def measure_arm(seed: int, tries: int, **config: Any) -> tuple[float, float, float]:
    """Of held-out answers: tokens written, the share that says the forbidden word, and the accuracy."""
    made = procedure_runs.run_rounds(seed, "coot", {**SHORT_TURNS, "tries": tries, **config}, **SETTINGS)
    return made.final("heldout/written"), made.final(FORBIDDEN), made.final("heldout/accuracy")


def measure(seed: int) -> Pairs:
    own = measure_arm(seed, TRIES)
    unguided = [measure_arm(seed, tries, beta=0.0) for tries in BUDGETS]
    plain = unguided[0]  # no roll-back: an answer is no better for the tokens of further answers
    return {
        "forbidden": (own[1], plain[1]),
        tiny.ACCURACY.name: (own[2], plain[2]),
        "forbidden without guidance": values_at_equal_tokens([own[:2]], [arm[:2] for arm in unguided]),
        "accuracy without guidance": values_at_equal_tokens([(own[0], own[2])], [(arm[0], arm[2]) for arm in unguided]),
    }


CASE = Case(
    method="coot",
    parent="procedure",
    claim="Held-out answers have the forbidden word less often than plainly sampled ones, and than those of as many tokens of roll-backs without"
    " guidance, and no fewer stories succeed.",
    quantities=(
        Quantity(
            "forbidden",
            "share of held-out answers with the forbidden word, the parent being plain sampling",
            "lower",
            0.02,
            "two of a hundred answers",
            by_construction="a violation is what it rolls back for",
        ),
        Quantity(
            tiny.ACCURACY.name,
            "held-out accuracy, the parent being plain sampling, whose answers take fewer tokens and are no better for more answers",
            "higher",
            0.02,
            "two more of a hundred stories",
        ),
        Quantity(
            "forbidden without guidance",
            "share of held-out answers with the forbidden word, the parent rolling back without guidance, at as many written tokens",
            "lower",
            0.02,
            "two of a hundred answers",
            by_construction="a violation is what it rolls back for",
        ),
        Quantity(
            "accuracy without guidance",
            "held-out accuracy, the parent rolling back without guidance, at as many written tokens",
            "higher",
            0.02,
            "two more of a hundred stories",
        ),
    ),
    problem="easy stories of which half forbid a word, frozen tiny policy, 1 roll-back of a turn, 2 guided tokens",
    measure=measure,
    seeds=3,
    changed="After a look at one seed: one roll-back of a turn in place of two, after which nearly nothing was left, the paper's beta in place of a"
    " third of it, the world's own share of prompts that forbid a word, and 512 held-out stories in place of 256.",
)
