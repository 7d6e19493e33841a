"""RMT on solutions of word problems: what the ordinary next-token loss keeps while the policy learns to predict chosen tokens."""

from bench.effect_cases import Case, Pairs, Quantity, tiny


def trained(seed: int, weight: float) -> tiny.Trained:
    return tiny.run_train(seed, "rmt", {"next_token": weight}, base="grpo")


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, 0.1), trained(seed, 0.0)
    return {"next-token loss": (own.last("rmt/next_token_loss", 10), parent.last("rmt/next_token_loss", 10))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="rmt",
    parent="grpo",
    claim="The next-token loss keeps the likelihood of the tokens that are not chosen, which reinforcement alone on the same items loses.",
    quantities=(
        Quantity(
            "next-token loss",
            "next-token loss of the other positions, last 10 of 40 steps (nats)",
            "lower",
            0.02,
            "two hundredths of a nat a token",
            by_construction="the loss has this very term",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="predicting tokens of solutions of word problems, tiny policy, 40 steps, the items without the next-token loss as parent",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
