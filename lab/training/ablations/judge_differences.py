"""The differences between judges in a grid: one factor says whose answers each judge was trained on, another what its accuracy is read on.

What each difference is stands in ``trainers/contract/judge_shelf_life.py``. A grid has them where levels of a factor that changes runs, and levels of
the one that is read, are called ``weak`` and ``strong`` (``seen`` and ``unseen`` for questions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.training.ablations.grid_figures import GridFigures, Key
from lab.training.ablations.intervals import MeanEstimate, estimate_mean_interval
from trainers.contract.judge_shelf_life import STRONG, WEAK, JudgeDifference, Place, list_judge_differences


@dataclass(frozen=True)
class GridJudgeDifference:
    """``rest``: the levels of the factors that are neither trained nor measured. ``estimate``: the mean over seeds that have both accuracies."""

    difference: JudgeDifference
    rest: Key
    estimate: MeanEstimate


def list_grid_judge_differences(figures: GridFigures) -> list[GridJudgeDifference]:
    """Those that have a finished seed, for every combination of the other factors; nothing where the grid is not one of judges."""
    places = find_judge_factors(figures)
    if places is None:
        return []
    trained, measured = places
    return [
        GridJudgeDifference(difference, rest, estimate)
        for rest in figures.list_keys(trained, measured)
        for difference in list_judge_differences(figures.factors[trained].level_names)
        if (estimate := estimate_judge_difference(figures, difference, (trained, measured), rest)) is not None
    ]


def find_judge_factors(figures: GridFigures) -> tuple[int, int] | None:
    """Places of the factors that say what judges were trained on and what they are measured on."""
    named = [place for place, factor in enumerate(figures.factors) if {WEAK, STRONG} <= set(factor.level_names)]
    trained = [place for place in named if not figures.factors[place].is_reading]
    measured = [place for place in named if figures.factors[place].is_reading]
    return (trained[0], measured[0]) if len(trained) == len(measured) == 1 else None


def estimate_judge_difference(figures: GridFigures, difference: JudgeDifference, places: tuple[int, int], rest: Key) -> MeanEstimate | None:
    """Paired by seed. None without a seed that has both, and where a level is not in the grid."""
    plus, minus = (read_accuracies(figures, place, places, rest) for place in (difference.plus, difference.minus))
    return estimate_mean_interval([plus[seed] - minus[seed] for seed in sorted(set(plus) & set(minus))])


def read_accuracies(figures: GridFigures, place: Place, places: tuple[int, int], rest: Key) -> Mapping[int, float]:
    """Seed → accuracy of a judge where it is measured; empty where the grid has no such cell."""
    entry = figures.entries.get(figures.place_levels(dict(zip(places, place, strict=True)), rest))
    return entry.values if entry is not None else {}
