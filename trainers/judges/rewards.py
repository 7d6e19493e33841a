"""Scoring a completion with a task's reward functions, and their weighted sum."""

import math
from collections.abc import Mapping

from trainers.contract.spec import HUMAN, RunSpec
from trainers.tasks.base import Example, Task


class RewardFailed(RuntimeError):
    """A reward function raised, or returned something that is not a number."""


def weights_of(task: Task, spec: RunSpec) -> dict[str, float]:
    """Weight of every reward function of the task: the spec's where it names one, else the task's own. People's column is the last."""
    weights = {name: spec.task.rewards.get(name, reward.weight) for name, reward in task.rewards.items()}
    return weights | {HUMAN: spec.human.weight} if spec.human else weights


def apply_reward_function(task: Task, name: str, text: str, example: Example) -> float | None:
    """One function's score, None when it has no opinion. Raises RewardFailed naming the task, the function and the completion."""
    try:
        value = task.rewards[name].function(text, example)
        if value is None:
            return None
        value = float(value)
    except Exception as error:  # third-party code on text a policy wrote: anything can happen in it
        raise RewardFailed(f"reward function {name!r} of task {task.name!r} failed on {text[:200]!r}: {type(error).__name__}: {error}") from error
    if not math.isfinite(value):
        raise RewardFailed(f"reward function {name!r} of task {task.name!r} returned {value} for {text[:200]!r}: return a finite number or None")
    return value


def score_all(task: Task, text: str, example: Example) -> dict[str, float | None]:
    return {name: apply_reward_function(task, name, text, example) for name in task.rewards}


def weighted_sum(rewards: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """Sum of weight x score over the functions with an opinion; None when none has one."""
    known = [(name, value) for name, value in rewards.items() if value is not None]
    return sum(weights[name] * value for name, value in known) if known else None
