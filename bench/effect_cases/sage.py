"""SAGE on word problems: how many groups have only wrong answers, or only right ones, and so teach nothing?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

STEPS = 24


def trained(seed: int, method: str) -> tiny.Trained:
    return tiny.run_train(seed, method, base="grpo", steps=STEPS)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, "sage"), trained(seed, "")
    return {
        "silent": (tiny.mean_of_steps(own, "frac_reward_zero_std"), tiny.mean_of_steps(parent, "frac_reward_zero_std"))
    } | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="sage",
    parent="grpo",
    claim="fewer prompts without any signal, because failed groups are asked again with a hint",
    quantities=(
        Quantity(
            "silent",
            "share of groups whose rewards are all equal, mean of 24 steps",
            "lower",
            0.05,
            "one group of twenty",
            by_construction="groups without a right answer are asked again with a hint",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 24 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
