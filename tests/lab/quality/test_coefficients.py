"""Coefficients against published examples, against the libraries on random data, and where they are not defined."""

from __future__ import annotations

import time

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.inter_rater import fleiss_kappa as fleiss_of_statsmodels

from lab.labelling.quality.coefficients import (
    ONE_VERDICT,
    TOO_FEW,
    Coefficient,
    cohen_kappa,
    compute_alphas,
    compute_coincidences,
    fleiss_kappa,
    krippendorff_alpha,
    percent_agreement,
    select_pairable_units,
)

# Fourteen psychiatrists' diagnoses of ten patients in five categories, after Fleiss (1971): kappa 0.210.
FLEISS = np.array(
    [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ]
)
# Four coders, twelve units, after Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section C; 0 is missing.
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
)


def counted(ratings: np.ndarray, size: int) -> np.ndarray:
    """(coders, units) with categories from 1, 0 for missing → (units, size)."""
    return np.stack([(ratings == category).sum(axis=0) for category in range(1, size + 1)], axis=1)


def alone(counts: np.ndarray) -> np.ndarray:
    return np.arange(len(counts))


def table_as_ratings(table: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    cells = [(row, column) for row, line in enumerate(table) for column, count in enumerate(line) for _ in range(count)]
    return np.array([row for row, _ in cells]), np.array([column for _, column in cells])


@pytest.mark.feature(64)
def test_fleiss_example() -> None:
    found = fleiss_kappa(FLEISS, alone(FLEISS))
    assert found.value == pytest.approx(0.210, abs=0.0005)
    assert (found.units, found.labels) == (10, 140)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.210 < found.high


@pytest.mark.feature(64)
@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_krippendorff_example(level: str, published: float) -> None:
    counts = counted(KRIPPENDORFF, 5)
    assert krippendorff_alpha(counts, alone(counts), level).value == pytest.approx(published, abs=0.0005)


# Two readers, 2 x 2, as textbooks print them: (20, 5, 10, 15) gives 0.40; the pair with equal raw agreement 0.6 gives 0.130 and 0.259.
@pytest.mark.feature(64)
@pytest.mark.parametrize(("table", "published"), [([[20, 5], [10, 15]], 0.40), ([[45, 15], [25, 15]], 0.1304), ([[25, 35], [5, 35]], 0.2593)])
def test_cohen_examples(table: list[list[int]], published: float) -> None:
    first, second = table_as_ratings(table)
    found = cohen_kappa(first, second, 2, alone(first))
    assert found.value == pytest.approx(published, abs=0.0001)
    wide = cohens_kappa(np.array(table))
    assert found.low == pytest.approx(wide.kappa_low, abs=0.08)
    assert found.high == pytest.approx(wide.kappa_upp, abs=0.08)


def test_percent_agreement_by_hand() -> None:
    counts = np.array([[2, 0], [1, 1], [3, 0], [2, 1], [1, 0]])  # the last has one label and does not count
    assert percent_agreement(counts, alone(counts)).value == pytest.approx((1 + 0 + 1 + 1 / 3) / 4)


tables = st.integers(2, 5).flatmap(lambda size: st.lists(st.lists(st.integers(0, 4), min_size=size, max_size=size), min_size=1, max_size=25))


@given(tables)
def test_alpha_equals_the_library_on_any_counts_and_so_does_what_is_resampled(rows: list[list[int]]) -> None:
    counts, items = select_pairable_units(np.array(rows), np.arange(len(rows)))
    used = (counts.sum(axis=0) > 0).sum() if len(counts) else 0
    for level in ("nominal", "ordinal", "interval"):
        mine = krippendorff_alpha(np.array(rows), np.arange(len(rows)), level)
        if used < 2:
            assert mine.value is None
            assert mine.why in (ONE_VERDICT, TOO_FEW)
            continue
        theirs = krippendorff.alpha(value_counts=counts, value_domain=list(range(counts.shape[1])), level_of_measurement=level)
        assert mine.value == pytest.approx(theirs)
        table = compute_coincidences(counts).sum(axis=0).reshape(1, counts.shape[1], -1)
        assert compute_alphas(table, level)[0] == pytest.approx(theirs)
    assert len(items) == len(counts)


@given(st.integers(2, 4), st.integers(2, 4), st.integers(2, 20), st.integers(0, 2**31))
def test_kappas_equal_the_library_on_random_labels(size: int, labellers: int, units: int, seed: int) -> None:
    ratings = np.random.default_rng(seed).integers(0, size, (labellers, units))
    counts = counted(ratings + 1, size)
    found = fleiss_kappa(counts, alone(counts))
    if len(np.unique(ratings)) > 1:
        assert found.value == pytest.approx(fleiss_of_statsmodels(counts))
    else:
        assert found.value is None
    first, second = ratings[0], ratings[1]
    kappa = cohen_kappa(first, second, size, alone(first))
    if len(np.unique(ratings[:2])) > 1:
        table = np.zeros((size, size), dtype=int)
        np.add.at(table, (first, second), 1)
        assert kappa.value == pytest.approx(cohens_kappa(table, return_results=False))
    else:
        assert kappa.value is None


def test_what_is_not_defined_says_why_and_is_never_nan() -> None:
    none = np.zeros((0, 2), dtype=np.int64)
    single = np.array([[1, 0], [0, 1]])
    same = np.array([[2, 0], [2, 0]])
    for found in everything(none) + everything(single):
        assert found.value is None
        assert found.why == TOO_FEW
    for found in everything(same)[1:]:
        assert found.value is None
        assert found.why == ONE_VERDICT
    assert everything(same)[0].value == 1.0
    for few in (np.array([[1, 1]]), np.array([[2, 0], [0, 2], [1, 1]]), np.array([[2, 0], [0, 2]] * 10)):
        assert all(found.value is not None for found in everything(few))
        assert all(
            found.low is None and found.why for found in everything(few)
        )  # few items, or nobody who differs: an interval without width would be a lie
    nobody = np.zeros(0, dtype=np.int64)
    assert cohen_kappa(nobody, nobody, 2, nobody).why == "no shared items"


def everything(counts: np.ndarray) -> list[Coefficient]:
    items = alone(counts)
    return [
        percent_agreement(counts, items),
        fleiss_kappa(counts, items),
        *(krippendorff_alpha(counts, items, level) for level in ("nominal", "ordinal")),
    ]


def test_intervals_are_the_same_each_time_and_wider_when_units_hang_together() -> None:
    ratings = np.random.default_rng(3).integers(0, 2, (2, 300))
    counts = counted(ratings + 1, 2)
    first, again = (percent_agreement(counts, alone(counts)) for _ in range(2))
    assert first == again
    in_thirty = np.repeat(np.arange(10), 30)
    order = np.argsort((ratings[0] == ratings[1]).astype(int))  # units of an item alike
    tied = percent_agreement(counts[order], in_thirty)
    assert tied.value == first.value
    assert tied.items == 10
    assert width(tied) > 3 * width(first)


def width(found: Coefficient) -> float:
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


def test_the_interval_covers_what_was_put_in() -> None:
    """Of 100 draws from a known agreement about 95 intervals hold it; fewer than 85 would be wrong."""
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(100):
        truth = rng.integers(0, 2, 200)
        second = np.where(rng.random(200) < 0.8, truth, 1 - truth)
        found = percent_agreement(counted(np.stack([truth, second]) + 1, 2), np.arange(200))
        held += found.low is not None and found.high is not None and found.low <= 0.8 <= found.high
    assert held >= 85


def test_five_thousand_items_of_five_labellers_take_a_second_at_most() -> None:
    rng = np.random.default_rng(5)
    counts = counted(rng.integers(0, 7, (5, 5000)) + 1, 7)
    krippendorff_alpha(counts[:50], np.arange(50), "ordinal")  # imports
    fleiss_kappa(counts[:50], np.arange(50))
    for measure in (lambda: krippendorff_alpha(counts, alone(counts), "ordinal"), lambda: fleiss_kappa(counts, alone(counts))):
        begin = time.process_time()
        assert measure().resamples == 1000
        assert time.process_time() - begin < 1.0
