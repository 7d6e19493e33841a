"""Few prompts, so that they come back: does dropping solved ones and recalling successes leave fewer groups without a signal?

On a toy of 64 bandits of 16 keys (5 seeds, 240 updates) it did not: 0.63 of the groups against 0.67, between 0.41 and 0.89 from seed to seed. What
is left after dropping the solved prompts are the hopeless ones and those just below the bar, and neither gives a signal.
"""

from bench.effect_cases import Case, Pairs, Quantity, tiny


def trained(seed: int, method: str) -> tiny.Trained:
    return tiny.run_train(seed, method, base="grpo", training__prompts=64)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, "fathom-rapo"), trained(seed, "")
    return {"silent": (own.last("frac_reward_zero_std", 15), parent.last("frac_reward_zero_std", 15))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="fathom-rapo",
    parent="grpo",
    claim="fewer groups have rewards without any spread",
    quantities=(
        Quantity(
            "silent",
            "share of groups without spread in the reward, last 15 of 40 steps",
            "lower",
            0.05,
            "one group of twenty",
            by_construction="solved prompts, whose groups are silent, are dropped",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="64 word problems, tiny policy, 40 steps, 5 epochs",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
    changed="a toy without an effect was dropped for the tiny policy",
)
