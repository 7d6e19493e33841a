"""Where a text is rolled back to: sharpness by hand, and that a point never keeps what was wrong."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.maths.rollback import find_earlier_point, find_peak, measure_sharpness, step_back

DRAFTS = st.integers(1, 20).flatmap(
    lambda count: st.tuples(
        st.lists(st.floats(0, 2), min_size=count, max_size=count),
        st.lists(st.booleans(), min_size=count, max_size=count).map(lambda clean: [*clean, False]),
    )
)


def test_the_worked_example():
    weights = torch.tensor([0.7, 0.1, 0.1, 0.1])
    assert float(torch.special.entr(weights).sum()) == pytest.approx(0.9404, abs=1e-4)
    assert measure_sharpness(weights) == pytest.approx(1.0216, abs=1e-4)
    assert measure_sharpness(torch.full((4,), 0.25)) == pytest.approx(0.25)
    assert measure_sharpness(torch.ones(1)) == 2.0


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=12))
def test_sharpness_lies_between_a_uniform_look_and_a_look_at_one_token(raw):
    weights = torch.tensor(raw, dtype=torch.float64)
    assert 1 / len(raw) - 1e-6 <= measure_sharpness(weights / weights.sum()) <= 2 + 1e-6


def test_the_latest_clean_peak_in_the_window_is_taken():
    sharpness, clean = [0.2, 0.9, 0.3, 0.8, 0.1, 0.7, 0.2], [True] * 7 + [False]
    assert find_peak(sharpness, clean, 0.1, 10) == 6
    assert find_peak(sharpness, [*clean[:6], False, False], 0.1, 10) == 4  # after the sixth token the text is wrong already
    assert find_peak(sharpness, clean, 0.75, 10) == 4
    assert find_peak(sharpness, clean, 0.75, 3) is None  # too far back
    assert find_peak(sharpness, clean, 1.0, 10) is None
    assert find_peak([0.5, 0.5, 0.5], [True, True, True, False], 0.1, 10) is None  # flat: no peak


def test_without_a_peak_it_goes_back_some_tokens_or_to_where_nothing_was_wrong():
    assert step_back([True, True, True, True, True, False], 3) == 2
    assert step_back([True, True, False, False, False, False], 2) == 1
    assert step_back([True, False], 3) == 0


def test_an_earlier_point_is_about_as_sharp():
    sharpness, clean = [0.75, 0.2, 0.7, 0.1, 0.8], [True] * 5 + [False]
    assert find_earlier_point(sharpness, clean, 5, 0.1, 0.8) == 3  # 0.7 of the 0.64 that are asked for
    assert find_earlier_point(sharpness, clean, 3, 0.1, 0.8) == 1
    assert find_earlier_point(sharpness, clean, 1, 0.1, 0.8) == 1
    assert find_earlier_point(sharpness, clean, 0, 0.1, 0.8) == 0
    assert find_earlier_point(sharpness, clean, 5, 0.9, 0.8) == 5


@given(DRAFTS, st.floats(0, 2), st.integers(1, 25), st.integers(1, 25), st.floats(0, 2))
def test_a_point_keeps_nothing_wrong_and_less_than_all(draft, tau, window, fallback, ratio):
    sharpness, clean = draft
    count = len(sharpness)
    peak = find_peak(sharpness, clean, tau, window)
    if peak is not None:
        assert count - window < peak < count
        assert clean[peak]
        assert sharpness[peak - 1] >= tau
    kept = step_back(clean, fallback)
    assert 0 <= kept <= max(0, count - fallback)
    assert not kept or clean[kept]
    point = kept if peak is None else peak
    earlier = find_earlier_point(sharpness, clean, point, tau, ratio)
    assert 0 <= earlier <= point
    if earlier < point:
        assert clean[earlier]
        assert sharpness[earlier - 1] >= max(tau, ratio * sharpness[point - 1])
