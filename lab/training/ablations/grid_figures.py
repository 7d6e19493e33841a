"""The figures of a grid: one quantity in every cell, seed by seed, before training and at the budget; and what the pages make of them.

An ordinary ablation is read as a grid of one factor, its variants.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from lab.training.ablations.budgets import Budget, Cut, find_budget_cuts
from lab.training.ablations.factors import Cell, Factor, Level
from lab.training.ablations.intervals import MeanEstimate, estimate_mean_interval
from lab.training.ablations.models import Ablation, AblationRun
from lab.training.ablations.quantities import AblationQuantity, list_quantities, make_quantity, read_run_values, reduce_curves
from lab.training.ablations.transfer import TransferRatio, estimate_transfer_ratio
from lab.training.runs import curve_values, metrics
from lab.training.runs.models import ACTIVE, Run, Status

Key = tuple[str, ...]  # the name of a level of every factor, in order
HELD_OUT = "heldout/"
DEFAULT = "heldout/accuracy"
WAITS, TRAINS = (Status.QUEUED, Status.LOST), ACTIVE
MOST_METRICS = 40  # further held-out metrics that are offered


@dataclass(frozen=True)
class GridEntry:
    """A cell: ``values`` and ``starts`` are seed → quantity at the budget and before training, of its finished runs. ``short``: seeds whose run ended
    before the budget was used up.
    """

    key: Key
    members: tuple[AblationRun, ...]
    quantity: AblationQuantity
    values: Mapping[int, float]
    starts: Mapping[int, float]
    short: tuple[int, ...] = ()

    @cached_property
    def estimate(self) -> MeanEstimate | None:
        return estimate_mean_interval([self.values[seed] for seed in sorted(self.values)])

    @property
    def gains(self) -> dict[int, float]:
        """Seed → after training minus before it."""
        return {seed: value - self.starts[seed] for seed, value in self.values.items() if seed in self.starts}

    def count(self, *statuses: str) -> int:
        return sum(member.run.status in statuses for member in self.members)

    @property
    def state(self) -> str:
        """What there is to say of its runs besides the finished ones that count; empty where all have finished with a value."""
        told = [
            (self.count(*TRAINS), "training"),
            (self.count(*WAITS), "waiting"),
            (self.count(Status.STOPPED), "stopped"),
            (self.count(Status.FAILED), "failed"),
            (self.count(Status.FINISHED) - len(self.values), "without the metric"),
            (len(self.short), "short of the budget"),
        ]
        return ", ".join(f"{number} {words}" for number, words in told if number)


@dataclass(frozen=True)
class GridFigures:
    factors: list[Factor]
    quantity: AblationQuantity
    entries: dict[Key, GridEntry]
    budget: Budget = field(default_factory=Budget)

    def list_keys(self, *without: int) -> list[Key]:
        """The keys of all factors but those at these places."""
        kept = [factor.level_names for place, factor in enumerate(self.factors) if place not in without]
        return list(itertools.product(*kept))

    def estimate_difference(self, place: int, first: str, second: str, rest: Key) -> MeanEstimate | None:
        """``second`` minus ``first`` of the factor at ``place``, paired by seed; ``rest``: the levels of the others."""
        before, after = (self.entries[(*rest[:place], level, *rest[place:])].values for level in (first, second))
        return estimate_mean_interval([after[seed] - before[seed] for seed in sorted(set(before) & set(after))])

    def list_transfers(self) -> list[GridTransfer]:
        """Of every two factors with the same levels the ratio of each trained level, in every combination of the others."""
        return [
            transfer
            for source, target in self.list_transfer_places()
            for rest in self.list_keys(source, target)
            for level in self.factors[source].level_names
            if (transfer := self.read_transfer(source, target, rest, level)) is not None
        ]

    def list_transfer_places(self) -> list[tuple[int, int]]:
        """(trained, measured): two factors with the same levels. One that is read of the runs is what was measured."""
        pairs = [
            (first, second)
            for first, second in itertools.combinations(range(len(self.factors)), 2)
            if sorted(self.factors[first].level_names) == sorted(self.factors[second].level_names)
        ]
        return [(second, first) if self.factors[first].is_reading else (first, second) for first, second in pairs]

    def read_transfer(self, source: int, target: int, rest: Key, level: str) -> GridTransfer | None:
        gains = {other: self.entries[self.place_levels({source: level, target: other}, rest)].gains for other in self.factors[target].level_names}
        ratio = estimate_transfer_ratio(gains, level)
        return None if ratio is None else GridTransfer(self.factors[source].name, self.factors[target].name, level, rest, ratio)

    def place_levels(self, chosen: Mapping[int, str], rest: Key) -> Key:
        """The key with these levels at their places and ``rest`` at the others, in order."""
        others = iter(rest)
        return tuple(chosen[place] if place in chosen else next(others) for place in range(len(self.factors)))


@dataclass(frozen=True)
class GridTransfer:
    """``level`` of the factor ``trained`` is what was trained; ``rest``: the levels of the factors that are neither trained nor measured."""

    trained: str
    measured: str
    level: str
    rest: Key
    ratio: TransferRatio


def list_shown_factors(ablation: Ablation) -> list[Factor]:
    """Of a grid its factors; of an ablation one whose levels are the variants."""
    variants = Factor("Variant", tuple(Level(variant.name) for variant in ablation.list_variants()))
    return ablation.list_factors() if ablation.is_grid else [variants]


def build_grid_figures(ablation: Ablation, members: Sequence[AblationRun], quantity: AblationQuantity) -> GridFigures:
    """From the finished runs among ``members``, with two queries for each metric that is read and two for the budget."""
    factors, budget = list_shown_factors(ablation), ablation.read_matched_budget()
    finished = [member.run for member in members if member.run.status == Status.FINISHED]
    cuts = find_budget_cuts(budget, [run.pk for run in finished])
    metric_of = {level.name: level.metric for factor in factors if factor.is_reading for level in factor.levels}
    read = {metric: read_quantity(make_quantity(metric, ()), finished, cuts) for metric in dict.fromkeys(metric_of.values())}
    read[""] = read_quantity(quantity, finished, cuts) if not metric_of else (quantity, {}, {})
    of_variant: dict[str, list[AblationRun]] = {}
    for member in members:
        of_variant.setdefault(member.variant, []).append(member)
    variants = name_variants(ablation, factors)
    entries = {}
    for key in itertools.product(*(factor.level_names for factor in factors)):
        metric = next((metric_of[level] for factor, level in zip(factors, key, strict=True) if factor.is_reading), "")
        changing = tuple(level for factor, level in zip(factors, key, strict=True) if not factor.is_reading)
        entries[key] = make_entry(key, of_variant.get(variants[changing], []), read[metric], cuts)
    return GridFigures(factors, quantity, entries, budget)


def name_variants(ablation: Ablation, factors: Sequence[Factor]) -> dict[Key, str]:
    """The levels that change runs → the variant that its runs are stored under."""
    if not ablation.is_grid:
        return {(name,): name for name in factors[0].level_names}
    return {tuple(level.name for level in cell.levels): cell.name for cell in ablation.list_variants() if isinstance(cell, Cell)}


QuantityReading = tuple[AblationQuantity, dict[UUID, float], dict[UUID, float]]  # with run → value, and run → value before training


def read_quantity(quantity: AblationQuantity, runs: Sequence[Run], cuts: Mapping[UUID, Cut]) -> QuantityReading:
    """What was measured before training is the evaluation of step 0; other metrics have none."""
    if not quantity.metric.startswith(HELD_OUT):
        return quantity, read_run_values(quantity, runs, cuts), {}
    curves = metrics.read_sparkline_series([run.pk for run in runs], quantity.metric, 0)
    starts = {key: curve_values.find_value_by_step(curve.steps, curve.values, 0) for key, curve in curves.items()}
    return quantity, reduce_curves(quantity, curves, cuts), {key: start[0] for key, start in starts.items() if start is not None}


def make_entry(key: Key, members: Sequence[AblationRun], reading: QuantityReading, cuts: Mapping[UUID, Cut]) -> GridEntry:
    quantity, values, starts = reading
    short = tuple(member.seed for member in members if member.run_id in values and member.run_id in cuts and cuts[member.run_id].is_short)
    of_seed, started = ({member.seed: found[member.run_id] for member in members if member.run_id in found} for found in (values, starts))
    return GridEntry(key, tuple(members), quantity, of_seed, started, short)


def list_grid_quantities(ablation: Ablation, members: Sequence[AblationRun]) -> list[AblationQuantity]:
    """Those of the recipe, then every other held-out metric that its first finished run has."""
    known = list_quantities(ablation)
    first = next((member.run for member in members if member.run.status == Status.FINISHED), None)
    names = [name for name in metrics.list_metric_names(first.pk) if name.startswith(HELD_OUT)] if first else []
    others = [name for name in names if name not in {quantity.metric for quantity in known}]
    return [*known, *(make_quantity(name, ()) for name in others[:MOST_METRICS])]


def choose_quantity(quantities: Sequence[AblationQuantity], key: str) -> AblationQuantity:
    """The one called so, else held-out accuracy, else the first."""
    by_key = {quantity.key: quantity for quantity in quantities}
    return by_key.get(key) or next((quantity for quantity in quantities if quantity.metric == DEFAULT), quantities[0])


def serialize_csv_rows(figures: GridFigures) -> list[list[Any]]:
    """One row a cell and seed, in long form; the quantity is empty where the run has none yet."""
    rows: list[list[Any]] = []
    for key, entry in figures.entries.items():
        for member in entry.members:
            value, start = entry.values.get(member.seed, ""), entry.starts.get(member.seed, "")
            short = "yes" if member.seed in entry.short else ""
            rows.append([*key, member.seed, member.run.number, member.run.status, entry.quantity.metric, value, start, short])
    return rows


CSV_COLUMNS = ("seed", "run", "status", "metric", "value", "before training", "ended before the budget")
