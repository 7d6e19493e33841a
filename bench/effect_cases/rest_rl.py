"""ReST-GRPO on word problems: how many groups of equal rewards, which teach nothing, are left after filtering and with beginnings?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

STEPS = 40


def trained(seed: int, method: str) -> tiny.Trained:
    return tiny.run_train(seed, method, base="grpo", steps=STEPS)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, "rest-rl"), trained(seed, "")
    return {
        "silent": (tiny.mean_of_steps(own, "frac_reward_zero_std"), tiny.mean_of_steps(parent, "frac_reward_zero_std"))
    } | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="rest-rl",
    parent="grpo",
    claim="Fewer groups have equal rewards when prompts are filtered by the deviation of their rewards and good answers are begun.",
    quantities=(
        Quantity(
            "silent",
            "share of groups with equal rewards over 40 steps",
            "lower",
            0.05,
            "one group of twenty",
            by_construction="prompts are chosen by the deviation of their rewards",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
