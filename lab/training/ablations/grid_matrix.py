"""A grid as people look at it: matrices of its cells, or of the differences between two levels of a factor, with a colour for each number."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.lib.numbers import parse_whole_number
from lab.training.ablations.factors import Factor
from lab.training.ablations.grid_figures import GridEntry, GridFigures, Key
from lab.training.ablations.intervals import MeanEstimate, adjust_holm, compute_zero_p, estimate_mean_interval

SHADES = 9  # of values, from the lowest to the highest shown
STEPS_APART = 4  # shades of a difference on each side of zero
LEVEL = 0.05  # that Holm's correction holds over all differences shown
UP, DOWN = "up", "down"
GAINS, BEFORE = "gains", "before"  # in the address: each cell since the evaluation before training, and that evaluation itself


@dataclass(frozen=True)
class LevelChange:
    """From one level of the factor at ``place`` to another one."""

    place: int
    first: int
    second: int

    @property
    def value(self) -> str:
        """In the address."""
        return f"{self.place}.{self.first}.{self.second}"

    def write_label(self, factors: Sequence[Factor]) -> str:
        names = factors[self.place].level_names
        return f"{factors[self.place].name}: {names[self.first]} → {names[self.second]}"


@dataclass(frozen=True)
class MatrixChoice:
    """Places of factors: in rows, in columns, and whose levels are compared. Every other factor has a matrix for each of its levels. ``gains``: cells
    show after training minus before it; ``before``: what they were before it.
    """

    rows: int | None
    columns: int | None
    change: LevelChange | None = None
    gains: bool = False
    before: bool = False

    @property
    def is_signed(self) -> bool:
        """Cells show how much something changed."""
        return self.gains or self.change is not None

    @property
    def left(self) -> int | None:
        return self.change.place if self.change else None

    @property
    def laid_out(self) -> list[int]:
        return [place for place in (self.rows, self.columns) if place is not None]


@dataclass(frozen=True)
class MatrixCell:
    """``estimate`` is None where no seed has a value. ``shade`` is a class of the style sheet; ``holds``: the difference is there after Holm's
    correction. ``runs``: places of the cells in the table of runs, both of a difference.
    """

    estimate: MeanEstimate | None
    state: str
    shade: str = ""
    arrow: str = ""
    holds: bool = False
    runs: tuple[int, ...] = ()


@dataclass(frozen=True)
class MatrixPanel:
    title: str
    head: list[str]
    rows: list[tuple[str, list[MatrixCell]]]

    @property
    def highest(self) -> list[str]:
        """For each column the row with the highest mean; empty for one with fewer than two values. Nothing at all where there is one row."""
        columns = range(len(self.head) if len(self.rows) > 1 else 0)
        return [find_highest_row([(name, cells[place]) for name, cells in self.rows]) for place in columns]


@dataclass(frozen=True)
class RunsRow:
    """A cell's runs; ``place`` is its anchor on the page."""

    place: int
    entry: GridEntry
    name: str


def list_level_changes(factors: Sequence[Factor]) -> list[LevelChange]:
    return [
        LevelChange(place, first, second)
        for place, factor in enumerate(factors)
        for first, second in itertools.combinations(range(len(factor.levels)), 2)
    ]


def read_matrix_choice(data: Mapping[str, Any], factors: Sequence[Factor]) -> MatrixChoice:
    """What the address asks for; what is no choice of this grid is its usual one. Of three factors the first has the panels."""
    change = next((one for one in list_level_changes(factors) if one.value == data.get("change")), None)
    shown = [place for place in range(len(factors)) if change is None or place != change.place]
    usual = shown[-2:]
    wanted = {name: parse_whole_number(data.get(name, ""), len(factors)) for name in ("rows", "columns")}
    rows = wanted["rows"] if wanted["rows"] in shown else next(iter(usual), None)
    columns = wanted["columns"] if wanted["columns"] in shown and wanted["columns"] != rows else next((one for one in usual if one != rows), None)
    shown_as = data.get("change") if change is None else ""
    return MatrixChoice(rows, columns, change, shown_as == GAINS, shown_as == BEFORE)


def build_matrix_panels(figures: GridFigures, choice: MatrixChoice) -> list[MatrixPanel]:
    """One matrix for each combination of the factors that are neither in rows nor in columns nor compared."""
    cells = build_matrix_cells(figures, choice)
    apart = [place for place in range(len(figures.factors)) if place not in choice.laid_out and place != choice.left]
    panels = []
    for levels in itertools.product(*(figures.factors[place].level_names for place in apart)):
        title = ", ".join(f"{figures.factors[place].name}: {level}" for place, level in zip(apart, levels, strict=True))
        at = dict(zip(apart, levels, strict=True))
        head = figures.factors[choice.columns].level_names if choice.columns is not None else [""]
        names = figures.factors[choice.rows].level_names if choice.rows is not None else [""]
        rows = [(name, [cells[find_cell_key(figures, choice, at, name, column)] for column in head]) for name in names]
        panels.append(MatrixPanel(title, head, rows))
    return panels


def find_cell_key(figures: GridFigures, choice: MatrixChoice, apart: Mapping[int, str], row: str, column: str) -> Key:
    """The levels of all factors but the compared one."""
    at = {**apart, **({choice.rows: row} if choice.rows is not None else {}), **({choice.columns: column} if choice.columns is not None else {})}
    return tuple(at[place] for place in range(len(figures.factors)) if place != choice.left)


def build_matrix_cells(figures: GridFigures, choice: MatrixChoice) -> dict[Key, MatrixCell]:
    """The cells by the levels of the factors that are shown, in the order of the factors."""
    places = {entry_key: row.place for row in list_runs_rows(figures) for entry_key in list_shared_keys(figures, row.entry.key)}
    if choice.change is not None:
        return build_difference_cells(figures, choice.change, places)
    if choice.gains:
        gains = {key: estimate_mean_interval([entry.gains[seed] for seed in sorted(entry.gains)]) for key, entry in figures.entries.items()}
        return build_signed_cells(gains, {key: entry.state for key, entry in figures.entries.items()}, {key: (places[key],) for key in gains})
    estimates = {key: estimate_start(entry) if choice.before else entry.estimate for key, entry in figures.entries.items()}
    shades = pick_value_shades(estimates)
    return {key: MatrixCell(estimates[key], entry.state, shades.get(key, ""), runs=(places[key],)) for key, entry in figures.entries.items()}


def estimate_start(entry: GridEntry) -> MeanEstimate | None:
    """The quantity before training, of the finished runs that were measured there."""
    return estimate_mean_interval([entry.starts[seed] for seed in sorted(entry.starts)])


def build_difference_cells(figures: GridFigures, change: LevelChange, places: Mapping[Key, int]) -> dict[Key, MatrixCell]:
    names = figures.factors[change.place].level_names
    compared = names[change.first], names[change.second]
    estimates = {rest: figures.estimate_difference(change.place, *compared, rest) for rest in figures.list_keys(change.place)}
    states, runs = dict[Key, str](), dict[Key, tuple[int, ...]]()
    for rest in estimates:
        pair = {level: (*rest[: change.place], level, *rest[change.place :]) for level in compared}
        states[rest] = "; ".join(f"{level}: {state}" for level, key in pair.items() if (state := figures.entries[key].state))
        runs[rest] = tuple(dict.fromkeys(places[key] for key in pair.values()))
    return build_signed_cells(estimates, states, runs)


def build_signed_cells(
    estimates: Mapping[Key, MeanEstimate | None], states: Mapping[Key, str], runs: Mapping[Key, tuple[int, ...]]
) -> dict[Key, MatrixCell]:
    """Of changes: with an arrow where the interval excludes 0."""
    shades, holding = pick_difference_shades(estimates), find_holding(estimates)
    return {
        key: MatrixCell(
            estimate, states[key], shades.get(key, ""), {1: UP, 0: "", -1: DOWN}[estimate.sign] if estimate else "", key in holding, runs[key]
        )
        for key, estimate in estimates.items()
    }


def find_highest_row(column: Sequence[tuple[str, MatrixCell]]) -> str:
    """The first of the rows with the highest mean."""
    means = {name: cell.estimate.mean for name, cell in column if cell.estimate is not None}
    return max(means, key=lambda name: means[name]) if len(means) > 1 else ""


def pick_value_shades(estimates: Mapping[Key, MeanEstimate | None]) -> dict[Key, str]:
    """Evenly from the lowest mean shown to the highest; the middle one where all are the same."""
    means = {key: estimate.mean for key, estimate in estimates.items() if estimate is not None}
    low, high = min(means.values(), default=0.0), max(means.values(), default=0.0)
    if high == low:
        return dict.fromkeys(means, f"shade-{SHADES // 2}")
    return {key: f"shade-{min(SHADES - 1, int((mean - low) / (high - low) * SHADES))}" for key, mean in means.items()}


def pick_difference_shades(estimates: Mapping[Key, MeanEstimate | None]) -> dict[Key, str]:
    """Evenly on both sides of zero, up to the largest difference shown."""
    means = {key: estimate.mean for key, estimate in estimates.items() if estimate is not None}
    most = max((abs(mean) for mean in means.values()), default=0.0)
    return {key: name_difference_shade(mean / most if most else 0.0) for key, mean in means.items()}


def name_difference_shade(share: float) -> str:
    """``share``: from -1 to 1."""
    step = round(abs(share) * STEPS_APART)
    return f"{'more' if share > 0 else 'less'}-{step}" if step else "same"


def find_holding(estimates: Mapping[Key, MeanEstimate | None]) -> set[Key]:
    """The differences that are there after Holm's correction over all that have an interval."""
    found = {key: p for key, estimate in estimates.items() if estimate is not None and (p := compute_zero_p(estimate)) is not None}
    return {key for key, p in zip(found, adjust_holm(list(found.values())), strict=True) if p < LEVEL}


def list_runs_rows(figures: GridFigures) -> list[RunsRow]:
    """The cells that have runs of their own; those that only read others are left out."""
    seen: dict[Key, GridEntry] = {}
    for key, entry in figures.entries.items():
        seen.setdefault(drop_readings(figures, key), entry)
    return [RunsRow(place, entry, " · ".join(changing)) for place, (changing, entry) in enumerate(seen.items(), start=1)]


def list_shared_keys(figures: GridFigures, key: Key) -> list[Key]:
    """The keys of all cells that read the same runs."""
    changing = drop_readings(figures, key)
    return [other for other in figures.entries if drop_readings(figures, other) == changing]


def drop_readings(figures: GridFigures, key: Key) -> Key:
    return tuple(level for factor, level in zip(figures.factors, key, strict=True) if not factor.is_reading)
