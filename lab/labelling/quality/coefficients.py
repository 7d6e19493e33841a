"""Coefficients of agreement with bootstrap intervals. Numbers in, numbers out; values come from krippendorff and statsmodels.

A unit is what labels are compared on: an item, or one pair of a ranking. ``counts`` (N, C) says how many labellers gave unit n category c;
categories are in order for what is ordinal. ``items`` (N,) is the item of each unit: the bootstrap draws items, because the pairs of one ranking
are not independent. Where a coefficient is not defined, ``value`` is None and ``why`` says so in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]  # (N, C)
Places = npt.NDArray[np.int64]  # (N,)
Floats = npt.NDArray[np.float64]

RESAMPLES = 1000
FEWEST_RESAMPLES = 200
MOST_DRAWS = 20_000_000  # resamples times kinds of items; beyond it there are fewer resamples
CONFIDENCE = 0.95
SEED = 20_260_731

TOO_FEW = "no item has labels from two people yet"
FEWEST_ITEMS = 5
FEW_ITEMS = f"fewer than {FEWEST_ITEMS} items give no interval"
ALL_ALIKE = "all resamples of these labels are identical"
ONE_VERDICT = "all labels are the same verdict, so chance agreement is complete"
UNSTABLE = "most resamples contain a single verdict"


@dataclass(frozen=True)
class Coefficient:
    """``low`` and ``high`` end its 95 % interval; ``units`` and ``items`` are those with at least two labels, ``labels`` all labels on them."""

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    units: int = 0
    items: int = 0
    labels: int = 0
    resamples: int = 0
    why: str = ""  # why there is no value, or no interval


def percent_agreement(counts: Counts, items: Places) -> Coefficient:
    """Mean over units of the share of pairs of labels that are the same."""
    counts, items = select_pairable_units(counts, items)
    if not len(counts):
        return Coefficient("Percent agreement", why=TOO_FEW)

    def stats(kinds: Counts) -> Floats:
        return np.column_stack([compute_pair_agreement(kinds), np.ones(len(kinds))])

    coefficient = make_coefficient("Percent agreement", float(compute_pair_agreement(counts).mean()), counts, items)
    return with_interval(coefficient, counts, items, stats, lambda sums: sums[:, 0] / sums[:, 1])


def fleiss_kappa(counts: Counts, items: Places) -> Coefficient:
    """Over the units with the most usual number of labels: Fleiss' kappa asks for as many on each."""
    from statsmodels.stats.inter_rater import fleiss_kappa as fleiss  # type: ignore[import-untyped]  # takes 1.5 s

    counts, items = select_pairable_units(counts, items)
    name = "Fleiss' kappa"
    if not len(counts):
        return Coefficient(name, why=TOO_FEW)
    sizes = counts.sum(axis=1)
    usual = int(np.bincount(sizes).argmax())
    counts, items = counts[sizes == usual], items[sizes == usual]
    if (counts.sum(axis=0) > 0).sum() < 2:
        return Coefficient(name, units=len(counts), items=len(np.unique(items)), labels=int(counts.sum()), why=ONE_VERDICT)

    def stats(kinds: Counts) -> Floats:
        return np.column_stack([compute_pair_agreement(kinds), np.ones(len(kinds)), kinds])

    def resampled(sums: Floats) -> Floats:
        shares = sums[:, 2:] / sums[:, 2:].sum(axis=1, keepdims=True)
        return beyond_chance(sums[:, 0] / sums[:, 1], (shares**2).sum(axis=1))

    return with_interval(make_coefficient(name, float(fleiss(counts)), counts, items), counts, items, stats, resampled)


def krippendorff_alpha(counts: Counts, items: Places, level: str) -> Coefficient:
    """``level``: nominal, ordinal or interval; for the last the categories are one apart."""
    import krippendorff

    counts, items = select_pairable_units(counts, items)
    name = f"Krippendorff's alpha, {level}"
    if not len(counts):
        return Coefficient(name, why=TOO_FEW)
    if (counts.sum(axis=0) > 0).sum() < 2:
        return Coefficient(name, units=len(counts), items=len(np.unique(items)), labels=int(counts.sum()), why=ONE_VERDICT)
    size = counts.shape[1]
    value = float(krippendorff.alpha(value_counts=counts, value_domain=list(range(size)), level_of_measurement=level))  # type: ignore[arg-type]
    coefficient = make_coefficient(name, value, counts, items)
    return with_interval(coefficient, counts, items, compute_coincidences, lambda sums: compute_alphas(sums.reshape(-1, size, size), level))


def cohen_kappa(first: Places, second: Places, size: int, items: Places) -> Coefficient:
    """Of two labellers' categories (N,) on the units that both labelled."""
    from statsmodels.stats.inter_rater import cohens_kappa  # type: ignore[import-untyped]

    name = "Cohen's kappa"
    if not len(first):
        return Coefficient(name, why="no shared items")
    cells = first * size + second
    table = np.bincount(cells, minlength=size * size).reshape(size, size)
    if (table.sum(axis=0) + table.sum(axis=1) > 0).sum() < 2:
        return Coefficient(name, units=len(first), items=len(np.unique(items)), labels=2 * len(first), why=ONE_VERDICT)

    def resampled(sums: Floats) -> Floats:
        tables = sums.reshape(-1, size, size)
        total = tables.sum(axis=(1, 2))
        expected = (tables.sum(axis=1) * tables.sum(axis=2)).sum(axis=1) / total**2
        return beyond_chance(np.trace(tables, axis1=1, axis2=2) / total, expected)

    value = float(cohens_kappa(table, return_results=False))
    coefficient = Coefficient(name, value, units=len(first), items=len(np.unique(items)), labels=2 * len(first))
    return with_interval(coefficient, cells[:, None], items, lambda kinds: np.eye(size * size)[kinds[:, 0]], resampled)


def select_pairable_units(counts: Counts, items: Places) -> tuple[Counts, Places]:
    """Only the units that at least two people labelled."""
    kept = counts.sum(axis=1) >= 2
    return counts[kept], items[kept]


def compute_pair_agreement(counts: Counts) -> Floats:
    """(N,): the share of pairs of labels on a unit that are the same."""
    sizes = counts.sum(axis=1)
    return np.asarray((counts * (counts - 1)).sum(axis=1) / (sizes * (sizes - 1)), dtype=np.float64)


def beyond_chance(observed: Floats, expected: Floats) -> Floats:
    """NaN where chance alone agrees always."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(expected < 1, (observed - expected) / (1 - expected), np.nan))


def compute_coincidences(counts: Counts) -> Floats:
    """(N, C * C): what each unit adds to Krippendorff's coincidence matrix."""
    size = counts.shape[1]
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(size)
    return np.asarray((pairs / (counts.sum(axis=1) - 1)[:, None, None]).reshape(len(counts), size * size))


def compute_alphas(tables: Floats, level: str) -> Floats:
    """Krippendorff's alpha of each coincidence matrix (R, C, C); NaN where only one category is left."""
    size = tables.shape[1]
    marginal = tables.sum(axis=2)
    places = np.arange(size)
    if level == "nominal":
        distance = np.broadcast_to((places[:, None] != places[None, :]).astype(float), tables.shape)
    elif level == "interval":
        distance = np.broadcast_to((places[:, None] - places[None, :]) ** 2.0, tables.shape)
    else:  # ordinal: how many labels lie between the two categories, each end counted half
        upto = np.cumsum(marginal, axis=1)
        middle = upto - marginal / 2
        distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    total = marginal.sum(axis=1)
    chance = marginal[:, :, None] * marginal[:, None, :] - marginal[:, :, None] * np.eye(size)
    expected = (chance * distance).sum(axis=(1, 2)) / (total - 1)
    observed = (tables * distance).sum(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(expected > 0, 1 - observed / expected, np.nan))


def make_coefficient(name: str, value: float, counts: Counts, items: Places) -> Coefficient:
    return Coefficient(name, value, units=len(counts), items=len(np.unique(items)), labels=int(counts.sum()))


def with_interval(
    coefficient: Coefficient, units: Counts, items: Places, stats: Callable[[Counts], Floats], statistic: Callable[[Floats], Floats]
) -> Coefficient:
    """``stats`` makes, of kinds of units (K, C), what adds up over units (K, k); ``statistic`` makes values (R,) of sums (R, k)."""
    if coefficient.items < FEWEST_ITEMS:
        return replace(coefficient, why=FEW_ITEMS)
    kinds, often = kinds_of_items(units, items, stats)
    resamples = int(min(RESAMPLES, max(FEWEST_RESAMPLES, MOST_DRAWS // len(kinds))))
    draws = np.random.default_rng(SEED).multinomial(coefficient.items, often / often.sum(), size=resamples)
    values = statistic(draws.astype(np.float64) @ kinds)
    defined = values[np.isfinite(values)]
    if len(defined) < resamples / 2:
        return replace(coefficient, resamples=resamples, why=UNSTABLE)
    if np.ptp(defined) < 1e-12:  # where everybody agrees the bootstrap knows no doubt, and an interval without width would be a lie
        return replace(coefficient, resamples=resamples, why=ALL_ALIKE)
    edge = (1 - CONFIDENCE) / 2
    low, high = np.quantile(defined, [edge, 1 - edge])
    return replace(coefficient, low=float(low), high=float(high), resamples=resamples)


def kinds_of_items(units: Counts, items: Places, stats: Callable[[Counts], Floats]) -> tuple[Floats, Places]:
    """What items add, each kind of item once, (K, k), and how many items are of it, (K,).

    Few kinds stand for very many items, and drawing how often each kind comes up is the same as drawing items.
    """
    kinds, of_unit = unique_rows(units)
    added = stats(kinds)
    _, of_item = np.unique(items, return_inverse=True)
    number = int(of_item.max()) + 1
    if number == len(items):
        return added, np.bincount(of_unit, minlength=len(kinds))
    sums = np.zeros((number, added.shape[1]))
    np.add.at(sums, of_item, added[of_unit])
    distinct, often = np.unique(sums, axis=0, return_counts=True)
    return distinct, often


def unique_rows(rows: Counts) -> tuple[Counts, Places]:
    """The different rows, and which of them each row is. Rows are written as one number where that fits, which sorts many times faster."""
    base = int(rows.max()) + 1
    if base ** rows.shape[1] < 2**62:
        keys = rows @ (base ** np.arange(rows.shape[1], dtype=np.int64))
        _, first, places = np.unique(keys, return_index=True, return_inverse=True)
        return rows[first], places
    unique, places = np.unique(rows, axis=0, return_inverse=True)
    return unique, places.reshape(-1)
