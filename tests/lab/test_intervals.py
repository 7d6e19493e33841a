"""Intervals of a mean: quantiles of Student's t against the tables, and what a single value can say."""

import math

import pytest

from lab.training.ablations.intervals import MeanEstimate, estimate_mean_interval, t_quantile


@pytest.mark.parametrize(("count", "expected"), [(2, 12.706), (3, 4.303), (4, 3.182), (5, 2.776), (10, 2.262), (30, 2.045), (61, 2.000)])
def test_the_quantile_is_that_of_the_tables(count: int, expected: float) -> None:
    assert t_quantile(count - 1) == pytest.approx(expected, abs=5e-4)


def test_it_approaches_the_normal_distribution() -> None:
    assert t_quantile(5000) == pytest.approx(1.95996, abs=1e-3)


@pytest.mark.parametrize("degrees_of_freedom", range(1, 12))
def test_quantiles_grow_with_the_confidence_and_shrink_with_the_degrees_of_freedom(degrees_of_freedom: int) -> None:
    assert t_quantile(degrees_of_freedom, 0.0) == pytest.approx(0.0, abs=1e-9)
    found = [t_quantile(degrees_of_freedom, confidence) for confidence in (0.5, 0.9, 0.95, 0.99)]
    assert found == sorted(found)
    assert t_quantile(degrees_of_freedom) > t_quantile(degrees_of_freedom + 1)


def test_the_mean_of_three_has_the_interval_of_the_textbook() -> None:
    found = estimate_mean_interval([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.mean, found.count) == (2.0, 3)
    assert found.half == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    assert estimate_mean_interval([0.5]) == MeanEstimate(0.5, None, 1)
    assert estimate_mean_interval([]) is None


@pytest.mark.parametrize(("mean", "half", "sign"), [(1.0, 0.5, 1), (-1.0, 0.5, -1), (1.0, 1.5, 0), (1.0, None, 0), (0.0, 0.0, 0)])
def test_a_sign_is_clear_only_when_the_interval_leaves_zero_out(mean: float, half: float | None, sign: int) -> None:
    assert MeanEstimate(mean, half, 3).sign == sign
