"""Does the number of reasoning segments come nearer to the problem's own?"""

import re

from bench.effect_cases import Case, tiny
from trainers.segments import step_texts

CHANGE = re.compile(r", [a-z ]+ [0-9]+")  # one in the question for each step of its solution


def distance(made: tiny.Trained) -> float:
    last = max(row["step"] for row in made.rollouts)
    rows = [row for row in made.rollouts if row["step"] > last - 10]
    return sum(abs(len(step_texts(row["text"])) - len(CHANGE.findall(row["prompt"]))) for row in rows) / len(rows)


def measure(seed: int) -> tuple[float, float]:
    return distance(tiny.run_train(seed, "cosmo", base="grpo")), distance(tiny.run_train(seed, base="grpo"))


CASE = Case(
    method="cosmo",
    parent="grpo",
    claim="the number of segments comes nearer to that of the solution",
    quantity="distance of an answer's segments to the solution's, last 10 of 40 steps",
    direction="lower",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
