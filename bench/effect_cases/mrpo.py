"""MRPO on word problems: the rank of answers' hidden states with the bonus (alpha 0.5) and without it (alpha 0, GRPO that only measures)."""

from bench.effect_cases import Case, tiny


def rank(seed: int, alpha: float) -> float:
    return tiny.run_train(seed, "mrpo", {"alpha": alpha}, base="grpo").last("mrpo/rank")


def measure(seed: int) -> tuple[float, float]:
    return rank(seed, 0.5), rank(seed, 0.0)


CASE = Case(
    method="mrpo",
    parent="grpo",
    claim="the hidden states of answers keep a higher rank",
    quantity="mean smallest window rank, last 5 of 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
