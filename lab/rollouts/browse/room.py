"""Which columns leave a table that has too little room, and at which width: the least important first, by what each of them needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lab.rollouts.browse.cells import TableRow
from lab.rollouts.browse.columns import Column
from lab.rollouts.browse.fields import COMPONENT

STEP = 2  # rem between the widths that the style sheet knows
NARROWEST, WIDEST = 28, 120  # rem: about what stays always needs; at a wider one no column leaves
TICK = 2.125  # rem of the column of ticks
# In rem, as the style sheet and the words of heads and cells have it.
NEEDED = {
    "run": 7,
    "prompt": 8,
    "completion": 14,
    "tags": 6,
    "finish": 6.75,
    "advantage": 5.25,
    "mean_entropy": 4,
    "reward": 3.875,
    "component": 3.75,
}
OTHER, ARROW = 3.625, 0.875  # the arrow stands in the head of what is sorted by
STAYING = ("step", "completion", "reward")
LEAVING = (
    "rating",
    "sample",
    "mean_entropy",
    "tags",
    "finish",
    "group",
    "length",
    "prompt",
)  # first to last; then reward functions, from the last on
LAST_TO_LEAVE = ("advantage", "run")


def place_columns(columns: Sequence[Column], chosen: Collection[str], sort: str, rows: Sequence[TableRow]) -> list[Column]:
    """The same columns, each with the width at which it leaves. What the person chose and what is sorted by stay."""
    empty = find_empty_columns(columns, rows)
    staying = {column.name for column in columns if column.name in STAYING or column.name in chosen or column.name == sort}
    ranks = {column.name: rank_column(column, at, empty) for at, column in enumerate(columns) if column.name not in staying}
    taken = TICK + ARROW * bool(sort) + sum(find_needed_width(column) for column in columns if column.name in staying)
    until: dict[str, int] = {}
    for column in sorted((column for column in columns if column.name in ranks), key=lambda column: ranks[column.name], reverse=True):
        taken += find_needed_width(column)
        until[column.name] = min(max(NARROWEST, STEP * -int(-taken // STEP)), WIDEST)
    return [replace(column, until=until.get(column.name, 0)) for column in columns]


def rank_column(column: Column, at: int, empty: Collection[str]) -> tuple[int, int]:
    """The smaller, the sooner it leaves; a column that says nothing on this page before all others, then those of other rooms."""
    if column.name in empty:
        return 0, 0
    if column.name in LEAVING:
        return 2, LEAVING.index(column.name)
    if column.name.startswith(COMPONENT):
        return 3, -at
    return (4, LAST_TO_LEAVE.index(column.name)) if column.name in LAST_TO_LEAVE else (1, 0)


def find_needed_width(column: Column) -> float:
    return NEEDED["component"] if column.name.startswith(COMPONENT) else NEEDED.get(column.name, OTHER)


def find_empty_columns(columns: Sequence[Column], rows: Sequence[TableRow]) -> set[str]:
    """Columns of what people say and of other rooms, in which no row of the page has anything."""
    empty = {column.name for column in columns if column.load and not any(column.name in row.loaded for row in rows)}
    if not any(row.summary.tags for row in rows):
        empty.add("tags")
    if all(row.summary.rating is None for row in rows):
        empty.add("rating")
    return empty
