"""VERL on word problems: the effective rank of answers with the bonus and without it (weight 0, GRPO that only measures)."""

from bench.effect_cases import Case, tiny


def rank(seed: int, weight: float) -> float:
    made = tiny.run_train(seed, "verl-effective-rank", {"weight": weight}, base="grpo", heldout=0, training__per_device_train_batch_size=32)
    return made.last("verl-effective-rank/er")


def measure(seed: int) -> tuple[float, float]:
    return rank(seed, 1.0), rank(seed, 0.0)


CASE = Case(
    method="verl-effective-rank",
    parent="grpo",
    claim="answers' hidden states keep a higher effective rank",
    quantity="mean effective rank of answers, last 5 of 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps of 32 answers",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
