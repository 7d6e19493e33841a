"""UniAPL on word problems, the adversarial term alone against GRPO: do samples come to look like the gold answers?"""

from bench.effect_cases import Case, tiny

WEIGHT = 0.1


def similarity(seed: int, weight: float) -> float:
    made = tiny.run_train(seed, "uniapl", {"imitation": 0.0, "adversarial": weight}, base="grpo")
    return made.last("uniapl/similarity", 10)


def measure(seed: int) -> tuple[float, float]:
    return similarity(seed, WEIGHT), similarity(seed, 0.0)  # without weights it is GRPO, and says the same quantity


CASE = Case(
    method="uniapl",
    parent="grpo",
    claim="samples become more like the teacher's answers",
    quantity="similarity of samples to gold answers, last 10 of 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps, adversarial term alone",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
