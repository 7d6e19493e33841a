"""SIRI on word problems: after three cycles between 40 and 20 tokens, how long is an answer, against a constant limit of 40?"""

from bench.effect_cases import Case, tiny

STEPS, CYCLE = 36, 12


def length(seed: int, method: str) -> float:
    config = {"cycle": CYCLE, "shortest": 0.5} if method else None
    return tiny.run_train(seed, method, config, base="dapo", steps=STEPS).final("heldout/length")


def measure(seed: int) -> tuple[float, float]:
    return length(seed, "siri"), length(seed, "")


CASE = Case(
    method="siri",
    parent="dapo",
    claim="after three cycles answers are shorter than with a constant limit",
    quantity="mean held-out length after 36 steps (tokens)",
    direction="lower",
    problem="word problems, tiny policy, 36 steps, cycles of 12",
    measure=measure,
    seeds=3,
    launch={"base": "dapo"},
)
