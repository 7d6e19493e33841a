"""A sampler that changes one hyperparameter of the best trial at a time, and learns by Q-learning which changes pay. Our own, after HHNAS-AM.

Actions: each number up or down, each choice to another value. State: what the last change was in the line of the trial that is changed.
    Q(s, a) <- Q(s, a) + lr (gain + gamma max_b Q(s', b) - Q(s, a))      s' = a;  gain: score of the child - its parent's, over the range of scores
With probability epsilon any action is taken, else the best one. The first trials are drawn at random.

HHNAS-AM (arXiv 2508.14946) chooses mutations of a text classifier's architecture so. Nothing is kept between trials: parent and change of each are
read off the values, a parent being the best earlier trial that differs in exactly one of them. So trials that were chosen otherwise teach as well.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

Values = dict[str, Any]
Action = tuple[str, str]  # name of a hyperparameter, and UP, DOWN or OTHER
State = Action | None  # None: drawn at random
UP, DOWN, OTHER = "up", "down", "other"
FIRST = 4  # trials at random
EPSILON, RATE, GAMMA = 0.3, 0.5, 0.5  # our values
LARGEST_STEP = 0.3  # of a range
TRIES = 20  # until a child is no earlier trial again


class MutationSampler(BaseSampler):
    def __init__(self, distributions: Mapping[str, BaseDistribution], seed: int) -> None:
        self.distributions, self.rng = dict(distributions), random.Random(seed)
        self.at_random = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing while trials are drawn at random, one hyperparameter after the other."""
        return self.distributions if len(list_finished(study, self.distributions)) >= FIRST else {}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> Values:
        if not search_space:
            return {}
        finished = list_finished(study, search_space)
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        scores = [sign * (one.value or 0.0) for one in finished]
        lines = trace_lines([one.params for one in finished], scores)
        best = max(range(len(finished)), key=scores.__getitem__)
        known = [one.params for one in study.get_trials(deepcopy=False) if one.number != trial.number]
        table = learn_values(lines, scores, list_actions(search_space))
        return self.make_child(finished[best].params, lines[best][1], table, known)

    def make_child(self, values: Values, state: State, table: Mapping[tuple[State, Action], float], known: Sequence[Values]) -> Values:
        """A child that is none of the ``known``; the last one drawn where that cannot be helped. After a known one any action is taken."""
        child = dict(values)
        for attempt in range(TRIES):
            actions = [one for one in list_actions(self.distributions) if has_room(values[one[0]], one[1], self.distributions[one[0]])]
            if not actions:
                break
            name, move = self.rng.choice(actions) if attempt or self.rng.random() < EPSILON else self.choose_action(actions, state, table)
            child = {**values, name: change_value(values[name], move, self.distributions[name], self.rng)}
            if child not in known:
                break
        return child

    def choose_action(self, actions: Sequence[Action], state: State, table: Mapping[tuple[State, Action], float]) -> Action:
        """One of the best, at random."""
        most = max(table.get((state, action), 0.0) for action in actions)
        return self.rng.choice([action for action in actions if table.get((state, action), 0.0) == most])

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        return self.at_random.sample_independent(study, trial, param_name, param_distribution)


def list_finished(study: Study, space: Mapping[str, BaseDistribution]) -> list[FrozenTrial]:
    """Those with a score and a value for everything, in their order."""
    return [one for one in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)) if set(space) <= set(one.params)]


def list_actions(space: Mapping[str, BaseDistribution]) -> list[Action]:
    return [(name, move) for name, one in space.items() for move in ((OTHER,) if isinstance(one, CategoricalDistribution) else (UP, DOWN))]


def find_change(parent: Values, child: Values) -> Action | None:
    """The change that made a child; None where it is none, or several."""
    changed = [name for name in child if child[name] != parent.get(name)]
    if len(changed) != 1:
        return None
    before, after = parent[changed[0]], child[changed[0]]
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (before, after))
    return changed[0], OTHER if not is_number else UP if after > before else DOWN


def trace_lines(values: Sequence[Values], scores: Sequence[float]) -> list[tuple[int | None, State]]:
    """(parent, change) of each trial; (None, None) of one that no earlier trial leads to by one change."""
    lines = list[tuple[int | None, State]]()
    for number, child in enumerate(values):
        changes = {earlier: change for earlier in range(number) if (change := find_change(values[earlier], child)) is not None}
        parent = max(changes, key=scores.__getitem__, default=None)
        lines.append((parent, None if parent is None else changes[parent]))
    return lines


def learn_values(lines: Sequence[tuple[int | None, State]], scores: Sequence[float], actions: Sequence[Action]) -> dict[tuple[State, Action], float]:
    """Q of each state and action that was tried, by one pass over the trials in their order."""
    table, width = dict[tuple[State, Action], float](), max(scores, default=0.0) - min(scores, default=0.0)
    for number, (parent, change) in enumerate(lines):
        if parent is None or change is None or width <= 0:
            continue
        key, gain = (lines[parent][1], change), (scores[number] - scores[parent]) / width
        ahead = max((table.get((change, one), 0.0) for one in actions), default=0.0)
        table[key] = table.get(key, 0.0) + RATE * (gain + GAMMA * ahead - table.get(key, 0.0))
    return table


def has_room(value: Any, move: str, distribution: BaseDistribution) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices) > 1
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return bool(value < distribution.high if move == UP else value > distribution.low)


def change_value(value: Any, move: str, distribution: BaseDistribution, rng: random.Random) -> Any:
    """Another value in the direction of the move, at most LARGEST_STEP of the range away, on its scale; an integer moves by one at least."""
    if isinstance(distribution, CategoricalDistribution):
        return rng.choice([choice for choice in distribution.choices if choice != value])
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high, at = (math.log(one) if distribution.log else float(one) for one in (distribution.low, distribution.high, value))
    step = (1 - rng.random()) * LARGEST_STEP * (high - low) * (1 if move == UP else -1)
    moved = min(high, max(low, at + step))
    moved = math.exp(moved) if distribution.log else moved
    if isinstance(distribution, FloatDistribution):
        return min(distribution.high, max(distribution.low, moved))
    whole = max(value + 1, round(moved)) if move == UP else min(value - 1, round(moved))
    return min(distribution.high, max(distribution.low, whole))
