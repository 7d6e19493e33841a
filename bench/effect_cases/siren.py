"""SIREN on word problems: the entropy of the peaks stays nearer to its anchor than without the term (weight 0)."""

from bench.effect_cases import Case, Pairs, Quantity, tiny

WEIGHT = 0.2  # the paper's 0.005 goes with completions of thousands of tokens; at 5 the term kept this policy from learning at all


def trained(seed: int, weight: float) -> tiny.Trained:
    return tiny.run_train(seed, "siren", {"weight": weight}, base="dr-grpo")


def drift(made: tiny.Trained) -> float:
    return sum(abs(step["siren/peak_entropy"] - step["siren/anchor"]) for step in made.steps[-10:]) / 10


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, WEIGHT), trained(seed, 0.0)
    return {"drift": (drift(own), drift(parent))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="siren",
    parent="dr-grpo",
    claim="peak entropy stays nearer to its anchor",
    quantities=(
        Quantity(
            "drift",
            "distance of peak entropy to its anchor, last 10 of 40 steps (nats)",
            "lower",
            0.02,
            "two hundredths of a nat",
            by_construction="a term of the loss holds the peaks to the anchor",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "dr-grpo"},
)
