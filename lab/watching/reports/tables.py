"""The table of runs that a report shows: the columns of the list of runs, each cell a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.training.runs.columns import FIXED, RunColumn, find_column, write_cells
from lab.training.runs.models import Run

# What the list of runs draws itself; a report writes it.
TEXTS: dict[str, Callable[[Run], str]] = {
    "status": lambda run: run.status,
    "recipe": lambda run: run.recipe,
    "policy": lambda run: run.policy,
    "task": lambda run: run.task,
    "progress": lambda run: f"{run.step} of {run.total_steps}" if run.total_steps else str(run.step),
    "who": lambda run: str(run.created_by or ""),
}


@dataclass(frozen=True)
class RunTable:
    """``rows``: each run with its cells as (column, text), without the column of its name."""

    columns: list[RunColumn]
    rows: list[tuple[Run, list[tuple[RunColumn, str]]]]

    @property
    def runs(self) -> list[Run]:
        return [run for run, _ in self.rows]


def find_table_columns(names: Sequence[str]) -> list[RunColumn]:
    return [column for name in names if name != FIXED and (column := find_column(name))]


def build_run_table(runs: Sequence[Run], names: Sequence[str]) -> RunTable:
    """A fixed number of queries, however many runs. ``names`` are known columns; that of the name is always there."""
    columns = find_table_columns(names)
    written = write_cells(columns, runs)

    def write(run: Run, column: RunColumn) -> str:
        own = TEXTS.get(column.name)
        return own(run) if own else written[run.pk].get(column.name, "")

    return RunTable(columns, [(run, [(column, write(run, column)) for column in columns]) for run in runs])
