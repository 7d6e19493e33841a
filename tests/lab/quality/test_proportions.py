"""Wilson's interval against statsmodels, and clusters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from lab.labelling.quality.proportions import clustered_share, estimate_effective_sample_size, estimate_share, has_share_fallen


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_equals_statsmodels(answers: tuple[int, int]) -> None:
    hits, n = answers
    found = estimate_share(hits, n)
    low, high = proportion_confint(hits, n, method="wilson")
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert found.value == hits / n


def test_no_answers_give_no_share() -> None:
    assert estimate_share(0, 0).value is None
    assert not estimate_share(0, 0).off_half


def test_side_bias_needs_an_interval_off_half() -> None:
    assert not estimate_share(7, 10).off_half
    assert estimate_share(70, 100).off_half
    assert estimate_share(30, 100).off_half


def test_three_votes_on_each_item_that_agree_are_worth_the_items() -> None:
    hits = np.repeat([True, False, True, True, False, True, False, True], 3)
    items = np.repeat(np.arange(8), 3)
    assert estimate_effective_sample_size(hits, items) == pytest.approx(7, abs=1.1)  # n / (n - 1) makes it a little less
    assert estimate_effective_sample_size(hits, np.arange(24)) == 24
    wide, narrow = clustered_share(hits, items), estimate_share(15, 24)
    assert wide.value == narrow.value
    assert wide.high - wide.low > narrow.high - narrow.low


def test_votes_that_all_say_the_same_count_items() -> None:
    assert estimate_effective_sample_size(np.ones(9, dtype=bool), np.repeat([0, 1, 2], 3)) == 3


def test_votes_on_an_item_that_differ_are_worth_no_more_than_votes() -> None:
    assert estimate_effective_sample_size(np.array([True, False] * 10), np.repeat(np.arange(10), 2)) == 20


@given(st.integers(5, 200), st.integers(5, 200), st.data())
def test_falling_agrees_with_newcombe(n: int, m: int, data: st.DataObject) -> None:
    first, second = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    _, high = confint_proportions_2indep(second, m, first, n, method="newcomb")
    if abs(high) > 1e-6:
        assert has_share_fallen(estimate_share(first, n), estimate_share(second, m)) == (high < 0)
