"""MRPO on word problems: the rank of answers' hidden states with the bonus (alpha 0.5) and without it (alpha 0, GRPO that only measures)."""

from bench.effect_cases import Case, Pairs, Quantity, tiny


def trained(seed: int, alpha: float) -> tiny.Trained:
    return tiny.run_train(seed, "mrpo", {"alpha": alpha}, base="grpo")


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, 0.5), trained(seed, 0.0)
    return {"rank": (own.last("mrpo/rank"), parent.last("mrpo/rank"))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="mrpo",
    parent="grpo",
    claim="the hidden states of answers keep a higher rank",
    quantities=(
        Quantity(
            "rank",
            "mean smallest window rank, last 5 of 40 steps",
            "higher",
            0.1,
            "a tenth of a dimension of about seven",
            by_construction="the reward pays for the rank",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
