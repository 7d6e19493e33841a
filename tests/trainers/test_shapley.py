"""Shapley values: a worked example, and what defines them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.maths.shapley import compute_shapley_values, list_coalitions

PLAYERS = ("a", "b", "c")


def test_a_worked_example():
    worth = {frozenset(): 0.2, frozenset("a"): 0.5, frozenset("b"): 0.3, frozenset("ab"): 0.9}
    assert compute_shapley_values("ab", worth) == pytest.approx({"a": 0.45, "b": 0.25})


@given(st.lists(st.floats(-2, 2), min_size=8, max_size=8))
def test_they_share_out_what_all_are_worth(values):
    worth = dict(zip(list_coalitions(PLAYERS), values, strict=True))
    found = compute_shapley_values(PLAYERS, worth)
    assert sum(found.values()) == pytest.approx(worth[frozenset(PLAYERS)] - worth[frozenset()], abs=1e-9)


@given(st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_who_adds_nothing_gets_nothing_and_equals_get_the_same(values):
    two = dict(zip(list_coalitions("ab"), values, strict=True))
    found = compute_shapley_values(PLAYERS, {some: two[some - {"c"}] for some in list_coalitions(PLAYERS)})
    assert found["c"] == pytest.approx(0, abs=1e-12)
    same = compute_shapley_values(PLAYERS, {some: values[min(len(some), 3)] for some in list_coalitions(PLAYERS)})
    assert max(same.values()) - min(same.values()) < 1e-9


def test_nobody_has_no_values_and_too_many_are_refused():
    assert compute_shapley_values((), {frozenset(): 1.0}) == {}
    with pytest.raises(ValueError, match="too many coalitions"):
        list_coalitions([str(number) for number in range(13)])
