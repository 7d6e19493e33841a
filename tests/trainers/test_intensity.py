"""Intensity from comparisons with anchors: the card's numbers, monotone in what was planted, and rank correlation with ties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.maths.intensity import MARGIN, compare_values, compute_rank_correlation, estimate_intensity, rank_evenly
from trainers.texts.properties import PROPERTIES

ANCHORS = torch.tensor([-1.0, 0.0, 1.0])


@pytest.mark.parametrize(("outcomes", "expected"), [([1, 1, 0], 0.8029), ([1, 0, 0], -0.8029), ([1, 0.5, 0], 0.0)])
def test_the_worked_examples_of_the_card(outcomes, expected):
    assert estimate_intensity(ANCHORS, torch.tensor([outcomes])).item() == pytest.approx(expected, abs=1e-4)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=8), st.integers(0, 16))
def test_the_estimate_is_a_root_or_the_end_of_the_range(anchors, halves):
    known = torch.tensor(anchors, dtype=torch.float64)
    wanted = min(halves / 2, len(anchors))
    outcomes = torch.full((1, len(anchors)), wanted / len(anchors), dtype=torch.float64)
    found = estimate_intensity(known, outcomes)
    low, high = min(anchors) - MARGIN, max(anchors) + MARGIN
    assert low <= found.item() <= high
    reached = torch.sigmoid(found - known).sum().item()
    inside = torch.sigmoid(low - known).sum().item() < wanted < torch.sigmoid(high - known).sum().item()
    assert not inside or reached == pytest.approx(wanted, abs=1e-6)


def test_the_likelihood_is_highest_at_the_estimate():
    outcomes = torch.tensor([[1.0, 1.0, 0.0]])
    found = estimate_intensity(ANCHORS, outcomes).item()

    def likelihood(value):
        gaps = value - ANCHORS
        return (outcomes[0] * torch.nn.functional.logsigmoid(gaps) + (1 - outcomes[0]) * torch.nn.functional.logsigmoid(-gaps)).sum().item()

    assert all(likelihood(found) > likelihood(found + step) for step in (-0.1, 0.1))


@given(st.lists(st.integers(0, 30), min_size=2, max_size=10))
def test_what_is_recovered_never_falls_with_what_was_planted(amounts):
    anchors = [2, 5, 9, 14, 20]
    found = estimate_intensity(torch.linspace(-10, 10, 5), compare_values(amounts, anchors))
    ordered = found[torch.tensor(amounts).argsort(stable=True)]
    assert (ordered.diff() >= -1e-5).all()


def test_a_tie_counts_half():
    assert compare_values([3, 5], [1, 3, 7]).tolist() == [[1, 0.5, 0], [1, 1, 0]]


def test_rank_correlation():
    one = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert compute_rank_correlation(one, one**3) == pytest.approx(1.0)
    assert compute_rank_correlation(one, -one) == pytest.approx(-1.0)
    assert compute_rank_correlation(one, torch.ones(4)) == 0
    assert compute_rank_correlation(torch.zeros(0), torch.zeros(0)) == 0
    assert rank_evenly(torch.tensor([5.0, 1.0, 5.0])).tolist() == [1.5, 0, 1.5]
    assert compute_rank_correlation(torch.tensor([1.0, 2, 2, 3]), torch.tensor([1.0, 3, 2, 4])) == pytest.approx(0.9486833)


@pytest.mark.parametrize("name", PROPERTIES)
@given(amount=st.integers(0, 40))
def test_an_anchor_has_what_it_was_written_with(name, amount):
    assert PROPERTIES[name].count(PROPERTIES[name].write(amount)) == amount


def test_polite_words_are_words():
    count = PROPERTIES["politeness"].count
    assert count("Please, thank you: kindly displease the thankless.") == 3
