"""Critique items among word problems: does the policy solve held-out problems at least as well after the same number of steps?"""

from bench.effect_cases import Case, Pairs, tiny


def measure(seed: int) -> Pairs:
    return tiny.budgeted_accuracies(tiny.run_train(seed, "critique-coder", base="grpo"), tiny.run_train(seed, base="grpo"))


CASE = Case(
    method="critique-coder",
    parent="grpo",
    claim="With a fifth of the prompts asking for a verdict on a solution, held-out problems are solved more often after the same number of steps.",
    quantities=(tiny.ACCURACY, tiny.ACCURACY_AT_TOKENS),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
