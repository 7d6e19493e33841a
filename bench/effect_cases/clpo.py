"""CLPO on word problems: how many groups of the update have equal rewards and teach nothing, with rewrites in the places of silent groups?"""

from bench.effect_cases import Case, tiny

STEPS = 24


def silent(seed: int, method: str) -> float:
    made = tiny.run_train(seed, method, base="grpo", steps=STEPS, heldout=64)
    return sum(step["frac_reward_zero_std"] for step in made.steps) / len(made.steps)


def measure(seed: int) -> tuple[float, float]:
    return silent(seed, "clpo"), silent(seed, "")


CASE = Case(
    method="clpo",
    parent="grpo",
    claim="fewer groups of the update have equal rewards, because rewritten prompts replace solved and hopeless ones",
    quantity="share of groups whose rewards are all equal, mean of 24 steps",
    direction="lower",
    problem="word problems, tiny policy, 24 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
