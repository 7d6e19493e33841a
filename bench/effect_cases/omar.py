"""One policy on both sides of a bargain, whose partner's scores are ten times as large: roles compared apart, against all together, and the rule."""

from typing import Any

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"scale": 10}
FIRST = 5  # steps


def run_bargain(seed: int, method: str = "", config: dict[str, Any] | None = None) -> tiny.Trained:
    return search_runs.run_search(seed, method, config, OPTIONS, world="bargain", base="dapo")


def measure(seed: int) -> Pairs:
    own, together, parent = run_bargain(seed, "omar"), run_bargain(seed, "omar", {"groups": "all"}), run_bargain(seed)
    return {
        "joint": (own.last("omar/joint"), sum(step["omar/joint"] for step in own.steps[:FIRST]) / FIRST),
        "joint, against all together": (own.last("omar/joint"), together.last("omar/joint")),
        "accuracy against all together": (own.final("heldout/accuracy"), together.final("heldout/accuracy")),
        **tiny.accuracies(own, parent),
    }


CASE = Case(
    method="omar",
    parent="dapo",
    claim="What both sides get together rises, and where their scores have different scales it rises more if roles are compared apart.",
    quantities=(
        Quantity("joint", "worth of the deals to both, of the best one's, last 5 steps; the parent: the first 5", "higher", 0.02, "a fiftieth of it"),
        Quantity(
            "joint, against all together",
            "worth of the deals to both, of the best deal's, last 5 steps; the parent compares both roles in one group",
            "higher",
            0.02,
            "a fiftieth of it",
        ),
        Quantity(
            "accuracy against all together",
            "held-out accuracy against the rule after 60 steps; the parent compares both roles in one group",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        tiny.ACCURACY,
    ),
    problem="two goods, private worths, the partner's own score times 10, tiny policy, 60 steps; the parent plays a rule, as all held-out",
    measure=measure,
    seeds=3,
    launch={"base": "dapo", "task": {"name": "bargain", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 48},
)
