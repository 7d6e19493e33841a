"""LLDS on word problems with four passes over each batch and a high learning rate: the likelihood of right completions, with the term and without."""

from bench.effect_cases import Case, Pairs, Quantity, tiny

WEIGHT = 0.2  # the paper's


def trained(seed: int, weight: float) -> tiny.Trained:
    return tiny.run_train(seed, "llds", {"weight": weight}, base="grpo", training__num_iterations=4, training__learning_rate=1e-3)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, WEIGHT), trained(seed, 0.0)  # without weight it is GRPO, and says the same quantity
    return {"likelihood": (own.last("llds/likelihood_right", 3), parent.last("llds/likelihood_right", 3))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="llds",
    parent="grpo",
    claim="right completions keep their likelihood",
    quantities=(
        Quantity(
            "likelihood",
            "mean log-likelihood of right completions in the last 3 batches of 40 steps (nats per token)",
            "higher",
            0.02,
            "two per cent of a token's probability",
            by_construction="a term of the loss holds the likelihood",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps, 4 passes a batch, learning rate 0.001",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "training__num_iterations": 2},
)
