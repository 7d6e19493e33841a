"""The trials of a sweep as its page shows them: ranked, with what each hyperparameter had to do with the score."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.http import QueryDict
from django.urls import reverse

from lab.lib.listing import ListQuery
from lab.training.runs.models import Status
from lab.training.sweeps.models import Direction, Sampler, Sweep, Trial
from lab.training.sweeps.scores import METRICS, SweepMetric, compute_score, read_score_series
from lab.training.sweeps.space import SEED, format_axis_value, list_sweepable_fields, read_axes

LEAST_RUNS = 8  # finished ones: with fewer a rank correlation says nothing
COMPARED = 20  # runs that a comparison holds
RANK, TRIAL, STATUS, SCORE = "rank", "trial", "status", "score"


class LeaderboardQuery(ListQuery):
    alphabetical = (RANK, TRIAL, STATUS)

    def url(self, **changes: str) -> str:
        pairs = QueryDict(mutable=True)
        pairs["sort"] = changes.get("sort", self.sort)
        return "?" + pairs.urlencode()


@dataclass(frozen=True)
class AxisColumn:
    key: str
    label: str
    log: bool = False


@dataclass(frozen=True)
class TrialRow:
    """``rank`` among the finished trials; ``score`` of one that has not finished is what it has so far."""

    trial: Trial
    score: float | None
    rank: int | None
    values: list[tuple[AxisColumn, str]]

    @property
    def is_final(self) -> bool:
        return self.rank is not None


@dataclass(frozen=True)
class Importance:
    """``correlation`` is None for words, which have no order, where the score or the value never changes, and for too few runs."""

    column: AxisColumn
    correlation: float | None

    @property
    def strength(self) -> float:
        return abs(self.correlation or 0.0)


@dataclass(frozen=True)
class ColumnHead:
    """Of the table: what it is called, how its number is read, and where a press on it leads."""

    label: str
    words: str
    url: str
    direction: str
    number: bool


@dataclass(frozen=True)
class Leaderboard:
    metric: SweepMetric
    columns: list[AxisColumn]
    rows: list[TrialRow]
    query: LeaderboardQuery
    importances: list[Importance]
    planned: int
    chart_json: str

    @property
    def best(self) -> TrialRow | None:
        return next((row for row in self.rows if row.rank == 1), None)

    @property
    def finished(self) -> int:
        return sum(row.is_final for row in self.rows)

    @property
    def has_open(self) -> bool:
        return any(row.trial.is_open for row in self.rows)

    @property
    def heads(self) -> list[ColumnHead]:
        plain = [(RANK, "Rank", "", True), (TRIAL, "Trial", "", False), (STATUS, "Status", "", False)]
        named = [*plain, (SCORE, self.metric.label, self.metric.words, True), *((column.key, column.label, "", True) for column in self.columns)]
        direction = "descending" if self.query.descending else "ascending"
        return [
            ColumnHead(label, words, self.query.toggled(key), direction if key == self.query.key else "", number)
            for key, label, words, number in named
        ]

    @property
    def counts(self) -> list[tuple[str, int]]:
        """How many trials are in each state, without the finished ones."""
        names = [row.trial.status for row in self.rows if row.trial.status != Status.FINISHED]
        return [(name, names.count(name)) for name in dict.fromkeys(names)]

    @property
    def numbers(self) -> list[int]:
        """Of the runs to compare, the best first."""
        ranked = sorted(self.rows, key=lambda row: (row.rank is None, row.rank or 0, row.trial.number))
        return [row.trial.run.number for row in ranked if row.trial.run and row.trial.run.binned_at is None][:COMPARED]

    @property
    def least(self) -> int:
        return LEAST_RUNS


def build_leaderboard(sweep: Sweep, sort: str = RANK) -> Leaderboard:
    metric, trials, columns = METRICS[sweep.metric], sweep.in_order(), list_columns(sweep)
    unscored = [trial.run for trial in trials if trial.run and trial.score is None]
    series = read_score_series(metric, unscored)
    scores = {trial.pk: compute_score(metric, series.get(trial.run.pk)) if trial.run and trial.score is None else trial.score for trial in trials}
    ended = [trial for trial in trials if scores[trial.pk] is not None and (trial.score is not None or trial.status == Status.FINISHED)]
    order = sorted(ended, key=lambda trial: (scores[trial.pk] or 0) * (-1 if sweep.direction == Direction.MAXIMIZE else 1))
    ranks = {trial.pk: place for place, trial in enumerate(order, start=1)}
    rows = [TrialRow(trial, scores[trial.pk], ranks.get(trial.pk), [(column, format_value(trial, column)) for column in columns]) for trial in trials]
    importances = [measure_importance(column, [row for row in rows if row.is_final]) for column in columns]
    query = read_sort(sort, columns)
    chart = build_parallel_chart(sweep, metric, columns, rows)
    return Leaderboard(metric, columns, sort_rows(rows, query), query, importances, sweep.planned, json.dumps(chart))


def list_columns(sweep: Sweep) -> list[AxisColumn]:
    if sweep.sampler == Sampler.SEEDS:
        return [AxisColumn(SEED, "Seed")]
    fields = list_sweepable_fields(sweep.spec)
    return [AxisColumn(axis.key, str(fields[axis.key].label) if axis.key in fields else axis.key, axis.log) for axis in read_axes(sweep.space)]


def format_value(trial: Trial, column: AxisColumn) -> str:
    return format_axis_value(trial.values[column.key]) if column.key in trial.values else "–"


def read_sort(sort: str, columns: Sequence[AxisColumn]) -> LeaderboardQuery:
    """What cannot be sorted by is sorted by rank."""
    known = {RANK, TRIAL, STATUS, SCORE, *(column.key for column in columns)}
    return LeaderboardQuery({}, sort if sort.removeprefix("-") in known else RANK)


def sort_rows(rows: list[TrialRow], query: LeaderboardQuery) -> list[TrialRow]:
    """What has no value comes last, whichever way the rest is sorted."""

    def value(row: TrialRow) -> Any:
        simple = {RANK: row.rank, TRIAL: row.trial.number, STATUS: row.trial.status, SCORE: row.score}
        return simple[query.key] if query.key in simple else row.trial.values.get(query.key)

    there = [row for row in rows if value(row) is not None]
    texts = any(isinstance(value(row), str) for row in there)
    there.sort(key=lambda row: str(value(row)) if texts else value(row), reverse=query.descending)
    rest = [row for row in rows if value(row) is None]
    return there + sorted(rest, key=lambda row: (row.score is None, row.trial.number))


def measure_importance(column: AxisColumn, rows: Sequence[TrialRow]) -> Importance:
    pairs = [(row.trial.values.get(column.key), row.score) for row in rows]
    if len(pairs) < LEAST_RUNS or any(isinstance(value, str) or value is None for value, _ in pairs):
        return Importance(column, None)
    return Importance(column, correlate_ranks([float(value) for value, _ in pairs], [float(score or 0) for _, score in pairs]))


def correlate_ranks(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation; equal values share their mean rank. None where one of them never changes."""
    one, other = average_ranks(first), average_ranks(second)
    if one.std() == 0 or other.std() == 0:
        return None
    return float(np.corrcoef(one, other)[0, 1])


def average_ranks(values: Sequence[float]) -> Any:
    _, places, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def build_parallel_chart(sweep: Sweep, metric: SweepMetric, columns: Sequence[AxisColumn], rows: Sequence[TrialRow]) -> dict[str, Any]:
    """For static/compare/parallel.js: the axes, and a line for each trial that has a score."""
    axes = [{"label": column.label, "log": column.log} for column in columns]
    lines = [
        {
            "id": f"trial-{row.trial.number + 1}",
            "label": f"{row.trial}, {row.trial.status}",
            "url": reverse("run", args=[row.trial.run_id]) if row.trial.run and row.trial.run.binned_at is None else "",
            "values": [row.trial.values.get(column.key) for column in columns] + [row.score],
            "final": row.is_final,
        }
        for row in rows
        if row.score is not None
    ]
    return {"axes": [*axes, {"label": metric.label, "log": False}], "lines": lines, "maximize": sweep.direction == Direction.MAXIMIZE}
