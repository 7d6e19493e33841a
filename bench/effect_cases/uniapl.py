"""UniAPL on word problems, the adversarial term alone against GRPO: do samples come to look like the gold answers?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

WEIGHT = 0.1


def trained(seed: int, weight: float) -> tiny.Trained:
    return tiny.run_train(seed, "uniapl", {"imitation": 0.0, "adversarial": weight}, base="grpo")


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, WEIGHT), trained(seed, 0.0)  # without weights it is GRPO, and says the same quantity
    return {"similarity": (own.last("uniapl/similarity", 10), parent.last("uniapl/similarity", 10))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="uniapl",
    parent="grpo",
    claim="samples become more like the teacher's answers",
    quantities=(
        Quantity(
            "similarity",
            "similarity of samples to gold answers, last 10 of 40 steps",
            "higher",
            0.01,
            "a hundredth of its range",
            by_construction="a term of the loss makes samples look like the teacher's",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps, adversarial term alone",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
