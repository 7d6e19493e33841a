"""Agentic proposing in the world problems: requests to write one, with credit for stages, against the same reward for the whole episode alone."""

from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.effect_cases.tiny import Trained

STEPS = 40
TASK = {"name": "problems", "difficulty": "medium", "options": {"ask": "write"}}


def trained(seed: int, omega: float) -> Trained:
    config = {"omega": omega, "attempts": 8}
    return tiny.run_train(seed, "agentic-proposing", config, steps=STEPS, task=TASK, training__max_completion_length=64)


def shares(made: Trained) -> dict[str, float]:
    return {"hard": made.last("agentic-proposing/hard"), "invalid": 1 - made.last("agentic-proposing/valid")}


def measure(seed: int) -> Pairs:
    own, plain = trained(seed, 0.5), trained(seed, 0.0)
    pairs = {name: (value, shares(plain)[name]) for name, value in shares(own).items()}
    return pairs | tiny.budgeted_accuracies(own, plain)


CASE = Case(
    method="agentic-proposing",
    parent="grpo",
    claim="with credit for stages more problems are valid and hard, and fewer are invalid, than with the episode's reward alone",
    quantities=(
        Quantity(
            "hard",
            "share of problems that are valid and that the prober solves, at most half the time (mean of the last 5 steps)",
            "higher",
            0.05,
            "a problem in twenty",
            by_construction="both arms pay for it",
        ),
        Quantity("invalid", "share of invalid problems (mean of the last 5 steps)", "lower", 0.02, "two of a hundred problems"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="world problems (medium, requests to write one), tiny policy, 40 steps; held-out accuracy is the share of valid problems",
    measure=measure,
    seeds=3,
    launch={"task": TASK, "training__max_completion_length": 64, "config": {"attempts": 8}},
)
