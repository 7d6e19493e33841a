"""SIRI on word problems: after three cycles between 40 and 20 tokens, how long is an answer, against a constant limit of 40?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

STEPS, CYCLE = 36, 12


def trained(seed: int, method: str) -> tiny.Trained:
    config = {"cycle": CYCLE, "shortest": 0.5} if method else None
    return tiny.run_train(seed, method, config, base="dapo", steps=STEPS)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, "siri"), trained(seed, "")
    return {"length": (own.final("heldout/length"), parent.final("heldout/length"))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="siri",
    parent="dapo",
    claim="after three cycles answers are shorter than with a constant limit",
    quantities=(
        Quantity(
            "length",
            "mean held-out length after 36 steps (tokens)",
            "lower",
            1.0,
            "one token of about twenty",
            by_construction="in half of each cycle longer answers are cut and earn nothing",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 36 steps, cycles of 12",
    measure=measure,
    seeds=3,
    launch={"base": "dapo"},
)
