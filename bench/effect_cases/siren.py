"""SIREN on word problems: the entropy of the peaks stays nearer to its anchor than without the term (weight 0)."""

from bench.effect_cases import Case, tiny

WEIGHT = 0.2  # the paper's 0.005 goes with completions of thousands of tokens; at 5 the term kept this policy from learning at all


def drift(seed: int, weight: float) -> float:
    made = tiny.run_train(seed, "siren", {"weight": weight}, base="dr-grpo")
    return sum(abs(step["siren/peak_entropy"] - step["siren/anchor"]) for step in made.steps[-10:]) / 10


def measure(seed: int) -> tuple[float, float]:
    return drift(seed, WEIGHT), drift(seed, 0.0)


CASE = Case(
    method="siren",
    parent="dr-grpo",
    claim="peak entropy stays nearer to its anchor",
    quantity="distance of peak entropy to its anchor, last 10 of 40 steps (nats)",
    direction="lower",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "dr-grpo"},
)
