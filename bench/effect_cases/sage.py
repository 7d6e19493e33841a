"""SAGE on word problems: how many groups have only wrong answers, or only right ones, and so teach nothing?"""

from bench.effect_cases import Case, tiny

STEPS = 24


def silent(seed: int, method: str) -> float:
    made = tiny.run_train(seed, method, base="grpo", steps=STEPS, heldout=64)
    return sum(step["frac_reward_zero_std"] for step in made.steps) / len(made.steps)


def measure(seed: int) -> tuple[float, float]:
    return silent(seed, "sage"), silent(seed, "")


CASE = Case(
    method="sage",
    parent="grpo",
    claim="fewer prompts without any signal, because failed groups are asked again with a hint",
    quantity="share of groups whose rewards are all equal, mean of 24 steps",
    direction="lower",
    problem="word problems, tiny policy, 24 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
