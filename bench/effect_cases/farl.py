"""FARL on word problems: a third of the cold start's demonstrations answer straight away, so the policy has a shortcut to forget."""

from bench.effect_cases import Case, Pairs, Quantity, tiny

WEIGHT = 0.01  # the paper's


def trained(seed: int, weight: float) -> tiny.Trained:
    return tiny.run_train(seed, "farl", {"weight": weight}, base="grpo")


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, WEIGHT), trained(seed, 0.0)  # without weight it is GRPO, and says the same quantity
    return {"shortcut": (own.last("farl/bare_probability", 10), parent.last("farl/bare_probability", 10))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="farl",
    parent="grpo",
    claim="the right answer without reasoning becomes less likely",
    quantities=(
        Quantity(
            "shortcut",
            "probability of the bare gold answer on training prompts, last 10 of 40 steps",
            "lower",
            0.01,
            "one of a hundred bare answers",
            by_construction="a term of the loss makes bare answers unlikely",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
