"""The rollouts that items are made of, as arrays: one row a rollout, without its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import BigIntegerField, BooleanField, F, FloatField, Func, Value
from django.db.models.expressions import Combinable

from lab.labelling.labels.recipe import PairSource, Recipe
from lab.rollouts.browse import regex
from lab.rollouts.browse.conditions import extract_reward_component, filter_matching_rollouts, runs_of
from lab.rollouts.browse.pages import split_id_batches
from lab.rollouts.browse.selection import Selection
from lab.teams.accounts.models import Team

MOST_ROLLOUTS = 300_000  # that are looked at, newest first
EXAMINED = 2000  # by a regular expression together
PATTERN_SECONDS = 5.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RolloutPool:
    """Each (R,). ``bucket`` numbers what answers are compared within: a group, or a prompt. ``side``: 0 or 1 of two policies, 0 within a group.

    ``value``: what the reward function that makes gold items gave, ``judge``: the one that votes beside the reward; NaN where none was asked for.
    ``read``: rollouts of the selection that were looked at; ``empty`` of them have no text, ``beyond`` were too many.
    """

    id: Ints
    prompt: Ints
    bucket: Ints
    side: Ints
    reward: Floats
    entropy: Floats
    length: Floats
    text: Ints  # hash of the completion
    value: Floats
    judge: Floats
    read: int = 0
    empty: int = 0
    beyond: bool = False

    def __len__(self) -> int:
        return len(self.id)

    def take(self, places: npt.NDArray[Any]) -> RolloutPool:
        return replace(self, **{name: getattr(self, name)[places] for name in ARRAYS})


ARRAYS = ("id", "prompt", "bucket", "side", "reward", "entropy", "length", "text", "value", "judge")


def build_pool_selection(recipe: Recipe) -> Selection:
    """Rollouts that count; of two policies those of both runs, whichever the selection names."""
    chosen = replace(recipe.selection, tries=False)
    if recipe.how == PairSource.RUNS and recipe.a and recipe.b:
        return replace(chosen, runs=tuple(dict.fromkeys((recipe.a.run, recipe.b.run))))
    return chosen


def read_pool(team: Team, recipe: Recipe) -> RolloutPool:
    """Sorted by bucket, then by run, step and sample. Raises regex.TooSlow."""
    selection = build_pool_selection(recipe)
    numbers = {run.pk: run.number for run in runs_of(team, selection)}
    columns = ("pk", "run_id", "phase", "step", "group", "sample", "prompt_id", "reward", "mean_entropy", "length", "text", "blank", "value", "judge")
    rollouts = filter_matching_rollouts(team, selection)
    if recipe.phase:
        rollouts = rollouts.filter(phase=recipe.phase)
    rollouts = rollouts.annotate(
        text=make_hash_expression(),
        blank=make_blank_expression(),
        value=extract_reward_component(recipe.gold_by) if recipe.gold else Value(None, output_field=FloatField()),
        judge=extract_reward_component(recipe.judge_by) if recipe.judge_by else Value(None, output_field=FloatField()),
    )
    rows: list[Any] = list(rollouts.order_by("-pk").values_list(*columns)[: MOST_ROLLOUTS + 1])
    beyond = len(rows) > MOST_ROLLOUTS
    rows = rows[:MOST_ROLLOUTS]
    if selection.pattern and not regex.find_pattern_problem(selection.pattern):
        known = match_pattern_ids(selection.pattern, [row[0] for row in rows])
        rows = [row for row in rows if row[0] in known]
    filled = [row for row in rows if not row[11]]
    pool = build_rollout_pool(filled, [numbers[row[1]] for row in filled], recipe)
    return replace(pool, read=len(rows), empty=len(rows) - len(filled), beyond=beyond)


def make_hash_expression() -> Combinable:
    return Func(F("completion"), Value(0), function="hashtextextended", output_field=BigIntegerField())


def make_blank_expression() -> Combinable:
    return Func(F("completion"), template=r"(%(expressions)s !~ '\S')", output_field=BooleanField())


def match_pattern_ids(pattern: str, ids: Sequence[int]) -> set[int]:
    return {pk for batch in split_id_batches(ids, EXAMINED) for pk in regex.matching_among(pattern, batch, PATTERN_SECONDS)}


def build_rollout_pool(rows: Sequence[Any], numbers: Sequence[int], recipe: Recipe) -> RolloutPool:
    """Rollouts with their bucket and side; those of neither side are left out."""
    pk, _, phase, step, group, sample, prompt, reward, entropy, length, text, _, value, judge = zip(*rows, strict=True) if rows else ((),) * 14
    steps, runs, prompts = to_integer_array(step), to_integer_array(numbers), to_integer_array(prompt)
    phases = np.unique(np.array(phase, dtype=str), return_inverse=True)[1].astype(np.int64) if rows else to_integer_array(())
    if recipe.how == PairSource.GROUP:
        keys, side = [runs, phases, steps, to_integer_array(group), prompts], np.zeros(len(rows), dtype=np.int64)
    elif recipe.how == PairSource.TIME:
        keys, side = [runs, phases, prompts], side_in_time(steps, recipe)
    else:
        keys, side = [phases, prompts], side_by_run(runs, steps, phases, prompts, recipe)
    pool = RolloutPool(
        to_integer_array(pk),
        prompts,
        number_key_rows(keys),
        side,
        to_float_array(reward),
        to_float_array(entropy),
        to_float_array(length),
        to_integer_array(text),
        to_float_array(value),
        to_float_array(judge),
    )
    order = np.lexsort((to_integer_array(sample), steps, side, pool.bucket))
    return pool.take(order[side[order] >= 0])


def side_in_time(steps: Ints, recipe: Recipe) -> Ints:
    assert recipe.early
    assert recipe.late
    early = (steps >= recipe.early.first) & (steps <= recipe.early.last)
    late = (steps >= recipe.late.first) & (steps <= recipe.late.last)
    return np.where(early, 0, np.where(late, 1, -1)).astype(np.int64)


def side_by_run(runs: Ints, steps: Ints, phases: Ints, prompts: Ints, recipe: Recipe) -> Ints:
    """Of each run and prompt, the step that is asked for, or the newest one there is."""
    side = np.full(len(runs), -1, dtype=np.int64)
    for number, chosen in ((1, recipe.b), (0, recipe.a)):
        assert chosen
        of_run = runs == chosen.run
        if chosen.step is not None:
            side[of_run & (steps == chosen.step)] = number
            continue
        cell = number_key_rows([phases, prompts])
        newest = np.full(cell.max(initial=-1) + 1, -1, dtype=np.int64)
        np.maximum.at(newest, cell[of_run], steps[of_run])
        side[of_run & (steps == newest[cell])] = number
    return side


def number_key_rows(keys: list[Ints]) -> Ints:
    """Rows with the same keys get the same number, from 0."""
    order = np.lexsort(keys)
    changes = np.zeros(len(order), dtype=np.int64)
    for key in keys:
        changes[1:] |= key[order][1:] != key[order][:-1]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(changes)
    return numbers


def to_integer_array(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def to_float_array(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def count_replayed_rollouts(team: Team, recipe: Recipe) -> int:
    """Rollouts of the selection that a resumed attempt sampled again: they are in no item."""
    return filter_matching_rollouts(team, replace(build_pool_selection(recipe), tries=True)).filter(superseded=True).order_by().count()
