"""FARL on word problems: a third of the cold start's demonstrations answer straight away, so the policy has a shortcut to forget."""

from bench.effect_cases import Case, tiny

WEIGHT = 0.01  # the paper's


def shortcut(seed: int, weight: float) -> float:
    return tiny.run_train(seed, "farl", {"weight": weight}, base="grpo").last("farl/bare_probability", 10)


def measure(seed: int) -> tuple[float, float]:
    return shortcut(seed, WEIGHT), shortcut(seed, 0.0)  # without weight it is GRPO, and says the same quantity


CASE = Case(
    method="farl",
    parent="grpo",
    claim="the right answer without reasoning becomes less likely",
    quantity="probability of the bare gold answer on training prompts, last 10 of 40 steps",
    direction="lower",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
