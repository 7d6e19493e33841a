"""E2C on word problems under the constrained reward: does alignment rise faster when plan tokens count double?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny


def trained(seed: int, weight: float) -> tiny.Trained:
    return tiny.run_train(seed, "e2c-explore-execute", {"weight": weight}, base="grpo")


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, 2.0), trained(seed, 1.0)
    return {
        "alignment": (tiny.mean_of_steps(own, "e2c-explore-execute/alignment"), tiny.mean_of_steps(parent, "e2c-explore-execute/alignment"))
    } | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="e2c-explore-execute",
    parent="grpo",
    claim="answers come to follow their working sooner with plan tokens weighted twice (against once, same reward)",
    quantities=(
        Quantity("alignment", "mean alignment over 40 steps", "higher", 0.02, "two more of a hundred answers"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
