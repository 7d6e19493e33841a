"""Reading what the rules need of one run: a fixed number of queries, whatever its length."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from django.db.models.functions import Right

from lab.rollouts.doctor.facts import RunFacts, TrainingAnswer
from lab.rollouts.doctor.rules import RULES
from lab.rollouts.trajectories.models import Rollout
from lab.training.runs import metric_thinning
from lab.training.runs.metrics import Series, read_attempt_cutoffs
from lab.training.runs.models import Run
from lab.training.runs.reward_weights import collect_reward_weights, get_spec_part
from trainers.contract.stacking import DEFAULT_BASES

ANSWERS = 256
TAIL = 600  # characters of a completion


def facts_of(run: Run) -> RunFacts:
    series = series_of(run)
    training = get_spec_part(run.spec, "training")
    return RunFacts(
        trainer=run.trainer,
        series=series,
        answers=load_newest_answers(run) if "reward" in series else [],
        weights=collect_reward_weights(run.spec),
        length_limit=parse_optional_integer(training.get("max_completion_length")),
        heldout_prompts=parse_optional_integer(get_spec_part(run.spec, "evaluation").get("prompts")),
        recipe=recipe_of(run),
    )


def recipe_of(run: Run) -> frozenset[str]:
    """Names of the base and of the methods, whatever a run sent from elsewhere holds in their place."""
    choices = run.spec.get("methods")
    chosen = [get_spec_part(run.spec, "base"), *(choices if isinstance(choices, list) else [])]
    names = [str(choice.get("name") or "") if isinstance(choice, Mapping) else "" for choice in chosen]
    return frozenset([names[0] or DEFAULT_BASES.get(run.trainer, ""), *names[1:]]) - {""}


def series_of(run: Run) -> dict[str, Series]:
    """Every point of the metrics that the rules name. In binary, and of gapless chunks without their steps: a third of the time of text."""
    limits, metric_names = read_attempt_cutoffs(run.pk), {name for rule in RULES for name in rule.metrics}
    rows = [row for row in metric_thinning.fetch_binary_rows(metric_thinning.HEADS, [run.pk]) if row[0] in metric_names]
    heads = {
        name: metric_thinning.plan_chunk_reads([metric_thinning.head_of(row, limits) for row in of_name], 0).whole
        for name, of_name in groupby(rows, lambda row: row[0])
    }
    chunks = [head.id for whole in heads.values() for head in whole]
    points = {key: (steps, values) for key, steps, values in metric_thinning.fetch_binary_rows(metric_thinning.POINTS, [chunks])} if chunks else {}
    series = {name: Series(name, *metric_thinning.read_whole(whole, points)) for name, whole in heads.items()}
    return {name: curve for name, curve in series.items() if len(curve)}


def load_newest_answers(run: Run) -> list[TrainingAnswer]:
    """The newest training rollouts, newest first. Their steps come from the index; only these rows are read."""
    newest = Rollout.objects.filter(run=run, phase="train", superseded=False).order_by("-step", "-group", "-sample").values_list("pk", flat=True)
    rows = Rollout.objects.filter(run=run, pk__in=list(newest[:ANSWERS])).order_by("-step", "-group", "-sample")
    fields = rows.values_list("step", "reward", "rewards", "finish_reason", "length", Right("completion", TAIL))
    return [
        TrainingAnswer(step, reward, parse_reward_numbers(rewards), finish, length, tail) for step, reward, rewards, finish, length, tail in fields
    ]


def parse_reward_numbers(rewards: Any) -> dict[str, float | None]:
    """A rollout's rewards; what is neither a number nor absent (NaN is stored as text) counts as absent."""
    given = rewards.items() if isinstance(rewards, dict) else ()
    return {name: float(value) if isinstance(value, int | float) else None for name, value in given}


def parse_optional_integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
