"""Scoring completions with a task's reward functions."""

import math
import time
from collections.abc import Sequence

from trainers.contract.spec import HUMAN, RunSpec
from trainers.maths.weighted_sums import weighted_sum as weighted_sum
from trainers.rewards.scores import RewardFailed as RewardFailed
from trainers.rewards.scores import Row, Score
from trainers.tasks.base import Example, Task


def weights_of(task: Task, spec: RunSpec) -> dict[str, float]:
    """Weight of every reward function of the task: the spec's where it names one, else the task's own. People's column is the last."""
    weights = {name: spec.task.rewards.get(name, reward.weight) for name, reward in task.rewards.items()}
    return weights | {HUMAN: spec.human.weight} if spec.human else weights


def score_column(task: Task, name: str, rows: Sequence[Row]) -> list[Score]:
    """One function's scores of a batch. A function of a task's code that raises stops the run, one of the library has no opinion on that row.

    Raises RewardFailed, also where somebody's Python failed on every completion.
    """
    scorer = task.rewards[name].scorer
    if scorer is None:
        return [score_with_function(task, name, text, example) for text, example in rows]
    try:
        scores = scorer.score_batch(rows)
    except RewardFailed as error:
        raise RewardFailed(f"reward function {name!r} cannot score: {error}") from error
    if scores and all(score.broken for score in scores):
        message = f"reward function {name!r} failed on all of {len(scores)} completions: {scores[0].error}"
        raise RewardFailed(message if len(scores) > 1 else f"reward function {name!r} failed on {rows[0][0][:200]!r}: {scores[0].error}")
    return scores


def score_with_function(task: Task, name: str, text: str, example: Example) -> Score:
    """Raises RewardFailed naming the task, the function and the completion."""
    began = time.perf_counter()
    try:
        value = task.rewards[name].function(text, example)
        value = None if value is None else float(value)
    except Exception as error:  # third-party code on text a policy wrote: anything can happen in it
        raise RewardFailed(f"reward function {name!r} of task {task.name!r} failed on {text[:200]!r}: {type(error).__name__}: {error}") from error
    if value is not None and not math.isfinite(value):
        raise RewardFailed(f"reward function {name!r} of task {task.name!r} returned {value} for {text[:200]!r}: return a finite number or None")
    return Score(value, seconds=time.perf_counter() - began)


def apply_reward_function(task: Task, name: str, text: str, example: Example) -> float | None:
    """One function's score, None when it has no opinion. Raises RewardFailed."""
    return score_column(task, name, [(text, example)])[0].value


def score_rows(task: Task, rows: Sequence[Row]) -> list[dict[str, float | None]]:
    """Every function's score of each completion; each function sees the whole batch. Raises RewardFailed."""
    columns = {name: score_column(task, name, rows) for name in task.rewards}
    return [{name: scores[place].value for name, scores in columns.items()} for place in range(len(rows))]


def score_all(task: Task, text: str, example: Example) -> dict[str, float | None]:
    return score_rows(task, [(text, example)])[0]
