"""Reading what the rules need of one run: a fixed number of queries, whatever its length."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from django.db.models.functions import Right

from lab.catalog.catalog import CatalogError, catalog
from lab.doctor.facts import Answer, Facts
from lab.doctor.rules import RULES
from lab.runs import thinned
from lab.runs.metrics import Series, cutoffs
from lab.runs.models import Run
from lab.trajectories.models import Rollout
from trainers.spec import HUMAN

ANSWERS = 256
TAIL = 600  # characters of a completion


def facts_of(run: Run) -> Facts:
    series = series_of(run)
    training = part(run.spec, "training")
    return Facts(
        trainer=run.trainer,
        series=series,
        answers=answers(run) if "reward" in series else [],
        weights=weights(run.spec),
        length_limit=whole(training.get("max_completion_length")),
        heldout_prompts=whole(part(run.spec, "evaluation").get("prompts")),
    )


def series_of(run: Run) -> dict[str, Series]:
    """Every point of the metrics that the rules name. In binary, and of gapless chunks without their steps: a third of the time of text."""
    limits, wanted = cutoffs(run.pk), {name for rule in RULES for name in rule.metrics}
    rows = [row for row in thinned.fetch(thinned.HEADS, [run.pk]) if row[0] in wanted]
    heads = {name: thinned.plan([thinned.head_of(row, limits) for row in of_name], 0).whole for name, of_name in groupby(rows, lambda row: row[0])}
    chunks = [head.id for whole in heads.values() for head in whole]
    points = {key: (steps, values) for key, steps, values in thinned.fetch(thinned.POINTS, [chunks])} if chunks else {}
    found = {name: Series(name, *thinned.read_whole(whole, points)) for name, whole in heads.items()}
    return {name: one for name, one in found.items() if len(one)}


def answers(run: Run) -> list[Answer]:
    """The newest training rollouts, newest first. Their steps come from the index; only these rows are read."""
    newest = Rollout.objects.filter(run=run, phase="train", superseded=False).order_by("-step", "-group", "-sample").values_list("pk", flat=True)
    rows = Rollout.objects.filter(pk__in=list(newest[:ANSWERS])).order_by("-step", "-group", "-sample")
    fields = rows.values_list("step", "reward", "rewards", "finish_reason", "length", Right("completion", TAIL))
    return [Answer(step, reward, numbers(rewards), finish, length, tail) for step, reward, rewards, finish, length, tail in fields]


def numbers(rewards: Any) -> dict[str, float | None]:
    """A rollout's rewards; what is neither a number nor absent (NaN is stored as text) counts as absent."""
    given = rewards.items() if isinstance(rewards, dict) else ()
    return {name: float(value) if isinstance(value, int | float) else None for name, value in given}


def weights(spec: Mapping[str, Any]) -> dict[str, float]:
    """Weight of each reward function: the task's own, or the spec's. A task the catalogue does not know gives only the spec's."""
    task = part(spec, "task")
    try:
        own = {reward["name"]: float(reward["weight"]) for reward in catalog().task(str(task.get("name", "")))["rewards"]}
    except CatalogError:
        own = {}
    people = part(spec, "human").get("weight")
    asked = {HUMAN: float(people)} if isinstance(people, int | float) else {}
    return own | {name: float(value) for name, value in part(task, "rewards").items() if isinstance(value, int | float)} | asked


def part(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = spec.get(name)
    return found if isinstance(found, Mapping) else {}


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
