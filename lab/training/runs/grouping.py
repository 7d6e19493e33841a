"""Runs in groups: which runs agree in a setting, and mean, lowest and highest of their numbers. A fixed number of queries, however many runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Avg, Count, F, Func, JSONField, Max, Min, QuerySet

from lab.training.runs.columns import BASE_NAME, CONFIG, KNOWN, METHOD_NAMES, RunColumn
from lab.training.runs.config_fields import ConfigField, format_config_value, read_config_field
from lab.training.runs.curve_figures import read_curve_figures
from lab.training.runs.models import Run
from lab.training.runs.verbs import MOST_AT_ONCE

STATISTICS = {"mean": Avg, "min": Min, "max": Max}
OF_VALUES: dict[str, Callable[[list[float]], Any]] = {"mean": np.mean, "min": np.min, "max": np.max}
PLAIN = ("recipe", "base", "methods", "trainer", "policy", "task", "status", "queue", "project", "who")
PATHS = {"who": "created_by__email", "project": "project__name"}
STACK = {"base": BASE_NAME, "methods": METHOD_NAMES}
MOST_VALUES = 5  # that runs are asked to have at once
MOST_CURVES = 1000  # runs whose curves are read for a group's numbers


@dataclass(frozen=True)
class GroupField:
    """What runs are grouped by; ``expression`` gives its value as JSON, NULL where a run has none."""

    name: str
    label: str
    expression: Any

    def format_value(self, value: Any) -> str:
        if self.name == "methods":
            return ", ".join(map(str, value)) if value else "none"
        return format_config_value(value) or "none"

    def narrow(self, runs: QuerySet[Run], value: Any, alias: str) -> QuerySet[Run]:
        """The runs that have this value, which the query calls ``alias``."""
        named = runs.alias(**{alias: self.expression})
        return named.filter(**{f"{alias}__isnull": True} if value is None else {alias: value})


def find_group_field(name: str) -> GroupField | None:
    if name in STACK:
        return GroupField(name, KNOWN[name].label, STACK[name])
    if name in PLAIN:
        return GroupField(name, KNOWN[name].label, Func(F(PATHS.get(name, name)), function="to_jsonb", output_field=JSONField()))
    field = read_config_field(name.removeprefix(CONFIG)) if name.startswith(CONFIG) else None
    return make_group_field(field) if field else None


def make_group_field(field: ConfigField) -> GroupField:
    return GroupField(CONFIG + field.name, field.label, field.expression)


@dataclass(frozen=True)
class GroupValue:
    """One value of a field, as the address says it: ``recipe:"grpo"``."""

    field: GroupField
    value: Any

    @classmethod
    def read(cls, text: str) -> GroupValue | None:
        name, _, written = text.partition(":")
        field = find_group_field(name)
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            return None
        return cls(field, value) if field and "\\u0000" not in written else None

    def __str__(self) -> str:
        return f"{self.field.name}:{json.dumps(self.value, ensure_ascii=False, separators=(',', ':'))}"

    @property
    def label(self) -> str:
        return f"{self.field.label}: {self.field.format_value(self.value)}"


def is_measured(column: RunColumn) -> bool:
    """Whether a group has mean, lowest and highest of it."""
    return bool(column.figure) or (column.order is not None and column.kind.startswith("num"))


def is_group_order(key: str) -> bool:
    name, _, statistic = key.rpartition(".")
    return key in ("group", "runs", "age") or (statistic in STATISTICS and name in KNOWN and is_measured(KNOWN[name]))


def read_group_values(text: str) -> tuple[GroupValue, ...]:
    """One a line; what is none is left out."""
    found = (GroupValue.read(line) for line in text.split("\n")[:MOST_VALUES])
    return tuple(one for one in found if one)


@dataclass(frozen=True)
class RunGroup:
    """``numbers``: of its runs, newest first. ``statistics``: column and statistic → value, None where no run has the number."""

    value: GroupValue
    numbers: list[int]
    statistics: dict[str, float | None]

    @property
    def label(self) -> str:
        return self.value.field.format_value(self.value.value)

    @property
    def can_tick(self) -> bool:
        """Acts on runs take so many at once."""
        return len(self.numbers) <= MOST_AT_ONCE


@dataclass(frozen=True)
class RunGroups:
    """``unread``: columns whose curves were not read, because the runs are too many."""

    groups: list[RunGroup]
    runs: int
    unread: tuple[str, ...] = ()


def collect_run_groups(runs: QuerySet[Run], field: GroupField, columns: Sequence[RunColumn]) -> RunGroups:
    """The groups of ``runs`` by ``field``, with the statistics of the numbers among ``columns``."""
    measured = [column for column in columns if is_measured(column)]
    figures = [column for column in measured if column.figure]
    totals: dict[str, Any] = {"numbers": ArrayAgg("number", order_by="-number")}
    for column in measured:
        totals |= {f"{column.name}_{name}": make(column.order) for name, make in STATISTICS.items() if not column.figure}
    rows: list[Any] = list(runs.order_by().annotate(agreed=field.expression).values("agreed").annotate(runs=Count("pk"), **totals))
    count = sum(row["runs"] for row in rows)
    ids = dict(runs.order_by().values_list("number", "pk")) if figures and count <= MOST_CURVES else {}
    read = read_figures(list(ids.values()), figures) if ids else {}

    def summarize(row: dict[str, Any]) -> RunGroup:
        found = {f"{column.name}.{name}": row.get(f"{column.name}_{name}") for column in measured for name in STATISTICS}
        for name, values in read.items():
            mine = [values[ids[number]] for number in row["numbers"] if ids.get(number) in values]
            found |= {f"{name}.{statistic}": float(compute(mine)) if mine else None for statistic, compute in OF_VALUES.items()}
        return RunGroup(GroupValue(field, row["agreed"]), row["numbers"], found)

    unread = tuple(dict.fromkeys(f"{column.label}, {column.words}" for column in figures)) if count > MOST_CURVES else ()
    return RunGroups([summarize(row) for row in rows], count, unread)


def read_figures(runs: Sequence[UUID], columns: Sequence[RunColumn]) -> dict[str, dict[UUID, float]]:
    """By column and run."""
    read = read_curve_figures(runs, [column.figure for column in columns])
    return {column.name: {run: value.value for run, value in read[column.figure].items()} for column in columns}


def sort_run_groups(groups: Sequence[RunGroup], key: str, descending: bool) -> list[RunGroup]:
    """What has no value comes last both ways; equal ones with the newest run first."""
    newest = sorted(groups, key=lambda group: -group.numbers[0])

    def find_place(group: RunGroup) -> Any:
        if key == "group":
            return rank_value(group.value.value)
        return {"runs": len(group.numbers), "age": group.numbers[0]}.get(key, group.statistics.get(key))

    there = sorted((group for group in newest if find_place(group) is not None), key=find_place, reverse=descending)
    return [*there, *(group for group in newest if find_place(group) is None)]


def rank_value(value: Any) -> tuple[int, float, str] | None:
    """Numbers by their size, before text by its letters."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), "") if is_number else (1, 0.0, json.dumps(value))
