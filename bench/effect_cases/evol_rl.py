"""Learning without labels: majority voting alone, or with novelty."""

from bench.effect_cases import Case, tiny


def entropy(seed: int, band: float) -> float:
    return tiny.run_train(seed, "evol-rl", {"band": band}, base="grpo").final("heldout/entropy")


def measure(seed: int) -> tuple[float, float]:
    return entropy(seed, 0.5), entropy(seed, 0.0)


CASE = Case(
    method="evol-rl",
    parent="grpo",
    claim="entropy stays higher than with majority voting alone (band 0)",
    quantity="held-out entropy after 40 steps (nats)",
    direction="higher",
    problem="word problems without labels, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
