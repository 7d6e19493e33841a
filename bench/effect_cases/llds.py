"""LLDS on word problems with four passes over each batch and a high learning rate: the likelihood of right completions, with the term and without."""

from bench.effect_cases import Case, tiny

WEIGHT = 0.2  # the paper's


def likelihood(seed: int, weight: float) -> float:
    made = tiny.run_train(seed, "llds", {"weight": weight}, base="grpo", training__num_iterations=4, training__learning_rate=1e-3)
    return made.last("llds/likelihood_right", 3)


def measure(seed: int) -> tuple[float, float]:
    return likelihood(seed, WEIGHT), likelihood(seed, 0.0)  # without weight it is GRPO, and says the same quantity


CASE = Case(
    method="llds",
    parent="grpo",
    claim="right completions keep their likelihood",
    quantity="mean log-likelihood of right completions in the last 3 batches of 40 steps (nats per token)",
    direction="higher",
    problem="word problems, tiny policy, 40 steps, 4 passes a batch, learning rate 0.001",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "training__num_iterations": 2},
)
