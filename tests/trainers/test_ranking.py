"""nDCG of an order of retrieval: a worked example, its bounds, and what makes it larger."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.maths.ranking import compute_dcg, compute_ndcg

ITEMS = st.lists(st.integers(0, 6), max_size=8)


def test_a_worked_example():
    assert compute_dcg([0, 1, 1]) == pytest.approx(1 / math.log2(3) + 1 / 2)
    assert compute_dcg([3]) == 7
    assert compute_ndcg(["beside", "first", "second"], ["first", "second"]) == pytest.approx(0.6934, abs=1e-4)
    assert compute_ndcg([1], [1, 2]) == pytest.approx(0.6131, abs=1e-4)  # half of it was never retrieved


@given(ITEMS, st.sets(st.integers(0, 6)))
def test_it_is_1_exactly_where_all_that_is_needed_comes_first(retrieved, needed):
    found = compute_ndcg(retrieved, needed)
    distinct = list(dict.fromkeys(retrieved))
    assert 0 <= found <= 1 + 1e-12
    assert (found > 1 - 1e-9) == (bool(needed) and set(distinct[: len(needed)]) == needed)
    assert (found == 0) == (not needed & set(retrieved))


@given(ITEMS, st.sets(st.integers(0, 6), min_size=1), st.data())
def test_retrieving_again_changes_nothing_and_an_earlier_place_is_worth_more(retrieved, needed, data):
    found = compute_ndcg(retrieved, needed)
    if retrieved:
        assert compute_ndcg([*retrieved, data.draw(st.sampled_from(retrieved))], needed) == found
    missing = needed - set(retrieved)
    if missing:
        new = min(missing)
        assert compute_ndcg([new, *retrieved], needed) >= compute_ndcg([*retrieved, new], needed) > found
    assert compute_ndcg([7, *retrieved], needed) <= found
