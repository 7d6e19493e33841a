"""Does paying for exploration lead to more right answers at equal steps?"""

from bench.effect_cases import Case, Pairs, tiny


def measure(seed: int) -> Pairs:
    return tiny.budgeted_accuracies(tiny.run_train(seed, "rlsp", base="grpo"), tiny.run_train(seed, base="grpo"))


CASE = Case(
    method="rlsp",
    parent="grpo",
    claim="with a reward for exploring more held-out answers are right at equal steps",
    quantities=(tiny.ACCURACY, tiny.ACCURACY_AT_TOKENS),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
