"""Roll-backs with guidance against plain sampling, and against as many roll-backs without guidance, which take as many tokens."""

from typing import Any

from bench import procedure_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

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
FORBIDDEN = "heldout/coot/forbidden"


def measure_arm(seed: int, tries: int, **config: Any) -> tuple[float, float]:
    """Of held-out answers: the share that says the forbidden word, and the accuracy."""
    made = procedure_runs.run_rounds(seed, "coot", {**SHORT_TURNS, "tries": tries, **config}, **SETTINGS)
    return made.final(FORBIDDEN), made.final("heldout/accuracy")


def measure(seed: int) -> Pairs:
    own, unguided, plain = measure_arm(seed, TRIES), measure_arm(seed, TRIES, beta=0.0), measure_arm(seed, 0)
    return {
        "forbidden": (own[0], plain[0]),
        tiny.ACCURACY.name: (own[1], plain[1]),
        "forbidden without guidance": (own[0], unguided[0]),
        "accuracy without guidance": (own[1], unguided[1]),
    }


CASE = Case(
    method="coot",
    parent="procedure",
    claim="Held-out answers have the forbidden word less often than plainly sampled ones, and than those of as many roll-backs without"
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
            "held-out accuracy, the parent being plain sampling, whose answers take fewer tokens",
            "higher",
            0.02,
            "two more of a hundred stories",
        ),
        Quantity(
            "forbidden without guidance",
            "share of held-out answers with the forbidden word, the parent rolling back as often, without guidance",
            "lower",
            0.02,
            "two of a hundred answers",
            by_construction="a violation is what it rolls back for",
        ),
        Quantity(
            "accuracy without guidance",
            "held-out accuracy, the parent rolling back as often, without guidance",
            "higher",
            0.02,
            "two more of a hundred stories",
        ),
    ),
    problem="easy stories of which half forbid a word, frozen tiny policy, 1 roll-back of a turn, 2 guided tokens",
    measure=measure,
    seeds=3,
    changed="After a look at one seed: one roll-back of a turn in place of two, after which nearly nothing was left, the paper's beta in place of a"
    " third of it, the world's own share of prompts that forbid a word, and 512 held-out stories in place of 256; the"
    " comparison with unguided roll-backs at as many tries, since at equal tokens there was nothing between the arms.",
)
