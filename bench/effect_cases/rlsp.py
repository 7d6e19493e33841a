"""Does paying for exploration lead to more right answers at equal steps?"""

from bench.effect_cases import Case, tiny


def measure(seed: int) -> tuple[float, float]:
    own, parent = tiny.run_train(seed, "rlsp", base="grpo"), tiny.run_train(seed, base="grpo")
    return own.final("heldout/accuracy"), parent.final("heldout/accuracy")


CASE = Case(
    method="rlsp",
    parent="grpo",
    claim="with a reward for exploring more held-out answers are right at equal steps",
    quantity="held-out accuracy after 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
