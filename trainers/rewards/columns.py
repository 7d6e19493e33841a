"""The reward columns of a run: the task's own functions, and those that the spec adds. One task object has them all.

Shadow columns are kept apart: nothing that trains sees them until they are promoted.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from trainers.contract.hyperparameters import GROUP_TRAINERS
from trainers.contract.problems import Problem, SpecError
from trainers.contract.reward_definitions import CodeReward, LibraryReward, RewardColumn, walk_definition
from trainers.contract.spec import HUMAN, RunSpec
from trainers.rewards.composition import build_reward
from trainers.rewards.definition_checks import find_definition_problems
from trainers.rewards.registry import FUNCTIONS
from trainers.rewards.scores import Scorer, ScoringContext
from trainers.tasks.base import Example, Reward

if TYPE_CHECKING:
    from trainers.tasks.base import Task

log = logging.getLogger(__name__)


def make_column_reward(column: RewardColumn, path: str) -> Reward:
    """The column as a task's reward function. Raises SpecError for a definition that cannot be built, at its place below ``path``."""
    scorer = build_reward(column.definition, f"{path}.definition")
    return Reward(SingleScore(scorer), describe_column(column), column.weight, scorer)


class SingleScore:
    """A scorer as a function of one completion."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def __call__(self, text: str, example: Example) -> float | None:
        return self.scorer.score_batch([(text, example)])[0].value


def describe_column(column: RewardColumn) -> str:
    """What a column measures, in one line."""
    parts = list(walk_definition(column.definition))
    if isinstance(column.definition, LibraryReward):
        return FUNCTIONS[column.definition.function].summary
    if isinstance(column.definition, CodeReward):
        return "Python of the team's own."
    names = dict.fromkeys(
        part.function if isinstance(part, LibraryReward) else "code" for part in parts if isinstance(part, LibraryReward | CodeReward)
    )
    kind = {"sum": "Weighted sum", "product": "Product", "gate": "Gate"}[column.definition.kind]
    return f"{kind} of {', '.join(names)}."


def compose_task(task: Task, spec: RunSpec) -> Task:
    """The task with the spec's columns after its own functions; shadows apart. Raises SpecError."""
    if problems := find_column_problems(task, spec, here=False):
        raise SpecError(problems)
    if not spec.rewards and not task.shadows:
        return task
    composed = copy.copy(task)
    added = {column.name: make_column_reward(column, f"rewards.{number}") for number, column in enumerate(spec.rewards) if not column.shadow}
    composed.rewards = {**task.rewards, **added}
    composed.shadows = (*task.shadows, *(column for column in spec.rewards if column.shadow))
    return composed


def find_column_problems(task: Task, spec: RunSpec, here: bool = True) -> list[Problem]:
    """What is wrong with the spec's columns beside this task's functions. ``here``: also what scoring needs and this machine does not have."""
    taken = {*task.rewards, *(column.name for column in task.shadows)}
    found = []
    for number, column in enumerate(spec.rewards):
        path = f"rewards.{number}"
        if column.name in taken:
            found.append(Problem(f"{path}.name", column.name, f"the task {task.name} has a reward function of this name", "rename it"))
        elif column.name == HUMAN:
            found.append(Problem(f"{path}.name", HUMAN, "is the name of the column of what people say", "rename it"))
        if column.shadow and spec.training.trainer not in GROUP_TRAINERS:
            message = f"{spec.training.trainer} has no shadow rewards"
            found.append(Problem(f"{path}.shadow", True, message, "train GRPO or RLOO, or give the column weight 0 in place of a shadow"))
        found += find_definition_problems(column.definition, f"{path}.definition", here)
    return found


def find_weight_problems(task: Task, spec: RunSpec) -> list[Problem]:
    """``task.rewards`` of a spec against the functions and columns there are; ``task`` is composed."""
    shadows, found = {column.name for column in task.shadows}, []
    for name, weight in spec.task.rewards.items():
        if name in shadows:
            message = "is a shadow, which has no weight until it is promoted"
            found.append(Problem(f"task.rewards.{name}", weight, message, "make it a reward, or leave its weight out"))
        elif name not in task.rewards:
            near = get_close_matches(name, task.rewards, n=1)
            fix = f"did you mean {near[0]}?" if near else f"use one of {', '.join(task.rewards)}"
            found.append(Problem(f"task.rewards.{name}", weight, f"{task.name} has no such reward function", fix))
    return found


def list_scorers(task: Task) -> list[Scorer]:
    return [reward.scorer for reward in task.rewards.values() if reward.scorer is not None]


def open_columns(task: Task, context: ScoringContext) -> None:
    for scorer in list_scorers(task):
        scorer.open(context)


def close_columns(scorers: Sequence[Scorer]) -> None:
    for scorer in scorers:
        try:
            scorer.close()
        except Exception:  # nothing depends on it any more
            log.exception("a reward function could not be closed")
