"""RMT on solutions of word problems: what the ordinary next-token loss keeps while the policy learns to predict chosen tokens."""

from bench.effect_cases import Case, tiny


def next_token_loss(seed: int, weight: float) -> float:
    return tiny.run_train(seed, "rmt", {"next_token": weight}, base="grpo").last("rmt/next_token_loss", 10)


def measure(seed: int) -> tuple[float, float]:
    return next_token_loss(seed, 0.1), next_token_loss(seed, 0.0)


CASE = Case(
    method="rmt",
    parent="grpo",
    claim="The next-token loss keeps the likelihood of the tokens that are not chosen, which reinforcement alone on the same items loses.",
    quantity="next-token loss of the other positions, last 10 of 40 steps (nats)",
    direction="lower",
    problem="predicting tokens of solutions of word problems, tiny policy, 40 steps, the items without the next-token loss as parent",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
