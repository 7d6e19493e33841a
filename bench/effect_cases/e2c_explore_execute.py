"""E2C on word problems under the constrained reward: does alignment rise faster when plan tokens count double?"""

from bench.effect_cases import Case, tiny


def alignment(seed: int, weight: float) -> float:
    made = tiny.run_train(seed, "e2c-explore-execute", {"weight": weight}, base="grpo")
    return sum(step["e2c-explore-execute/alignment"] for step in made.steps) / len(made.steps)


def measure(seed: int) -> tuple[float, float]:
    return alignment(seed, 2.0), alignment(seed, 1.0)


CASE = Case(
    method="e2c-explore-execute",
    parent="grpo",
    claim="answers come to follow their working sooner with plan tokens weighted twice (against once, same reward)",
    quantity="mean alignment over 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
