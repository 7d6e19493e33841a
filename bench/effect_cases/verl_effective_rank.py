"""VERL on word problems: the effective rank of answers with the bonus and without it (weight 0, GRPO that only measures)."""

from bench.effect_cases import Case, Pairs, Quantity, tiny


def trained(seed: int, weight: float) -> tiny.Trained:
    return tiny.run_train(seed, "verl-effective-rank", {"weight": weight}, base="grpo", training__per_device_train_batch_size=32)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, 1.0), trained(seed, 0.0)
    return {"rank": (own.last("verl-effective-rank/er"), parent.last("verl-effective-rank/er"))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="verl-effective-rank",
    parent="grpo",
    claim="answers' hidden states keep a higher effective rank",
    quantities=(
        Quantity(
            "rank",
            "mean effective rank of answers, last 5 of 40 steps",
            "higher",
            0.2,
            "a fifth of a dimension of about seventeen",
            by_construction="the advantages are shaped by the rank",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps of 32 answers",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
