"""ReST-GRPO on word problems: how many groups of equal rewards, which teach nothing, are left after filtering and with beginnings?"""

from bench.effect_cases import Case, tiny

STEPS = 40


def flat_groups(seed: int, method: str) -> float:
    made = tiny.run_train(seed, method, base="grpo", steps=STEPS)
    return made.last("frac_reward_zero_std", STEPS)


def measure(seed: int) -> tuple[float, float]:
    return flat_groups(seed, "rest-rl"), flat_groups(seed, "")


CASE = Case(
    method="rest-rl",
    parent="grpo",
    claim="Fewer groups have equal rewards when prompts are filtered by the deviation of their rewards and good answers are begun.",
    quantity="share of groups with equal rewards over 40 steps",
    direction="lower",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
