"""A scorer that likes any true equation: does the policy farm it? Clip-Delta against the plain sum of the same scores."""

from bench.effect_cases import Case, tiny


def steps_written(seed: int, shape: str) -> float:
    name = "effective-rl-reward-clip-delta"
    made = tiny.run_train(seed, name, {"shape": shape, "scorer": "arithmetic"}, base="grpo")
    return made.last("completions/mean_length", 10)


def measure(seed: int) -> tuple[float, float]:
    return steps_written(seed, "clip-delta"), steps_written(seed, "sum")


CASE = Case(
    method="effective-rl-reward-clip-delta",
    parent="grpo",
    claim="answers stay shorter than under the plain sum of step scores, which pays for every true equation",
    quantity="mean length of an answer, last 10 of 40 steps (tokens)",
    direction="lower",
    problem="word problems, tiny policy, 40 steps; both with a scorer that gives 0.9 to any true equation",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
