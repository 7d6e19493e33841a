"""Critique items among word problems: does the policy solve held-out problems at least as well after the same number of steps?"""

from bench.effect_cases import Case, tiny


def accuracy(seed: int, method: str) -> float:
    return tiny.run_train(seed, method, base="grpo").final("heldout/accuracy")


def measure(seed: int) -> tuple[float, float]:
    return accuracy(seed, "critique-coder"), accuracy(seed, "")


CASE = Case(
    method="critique-coder",
    parent="grpo",
    claim="With a fifth of the prompts asking for a verdict on a solution, held-out problems are solved more often after the same number of steps.",
    quantity="held-out accuracy after 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
