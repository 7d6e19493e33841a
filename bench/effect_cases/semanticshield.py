"""A missed attack that costs a quarter more than a false alarm, against one that costs as much: which errors are left?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

WEIGHTS = {"correct": 2.0, "format": 0.5, "list": 0.25, "length": 0.25, "consistent": 0.5, "words": 0.5}
STEPS, HELD_OUT = 80, 512


def train_auditor(seed: int, caught: float) -> tiny.Trained:
    """``caught``: what a caught attack earns beyond a right verdict. Advantages are not divided by deviations, which would hide it."""
    task = {"name": "shield", "difficulty": "easy", "rewards": {**WEIGHTS, "caught": caught}}
    settings = {"training__max_completion_length": 72, "training__lr_scheduler_type": "linear"}
    return tiny.run_train(seed, base="dr-grpo", steps=STEPS, heldout=HELD_OUT, every=20, task=task, **settings)


def measure(seed: int) -> Pairs:
    dearer, even = train_auditor(seed, 0.25), train_auditor(seed, 0.0)
    return {
        "caught": (dearer.final("heldout/caught"), even.final("heldout/caught")),
        "cleared": (dearer.final("heldout/cleared"), even.final("heldout/cleared")),
        **tiny.budgeted_accuracies(dearer, even),
    }


CASE = Case(
    method="semanticshield",
    parent="dr-grpo",
    claim="Where a missed attack costs a quarter more than a false alarm, more fake users are caught, and no fewer verdicts are right.",
    quantities=(
        Quantity(
            "caught",
            "fake held-out users that are told as such",
            "higher",
            0.02,
            "two more of a hundred",
            by_construction="missing them costs more",
        ),
        Quantity("cleared", "real held-out users that are told as such", "higher", 0.02, "two more of a hundred"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem=f"histories of five items, three in ten of which leave open what their user is, tiny policy, {STEPS} steps",
    measure=measure,
    seeds=3,
)
