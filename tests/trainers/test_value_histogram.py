"""Values as histograms: the card's numbers, gradients, the way back to a value, and calibration."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.maths.value_histogram import ValueBins, choose_value_bins, match_mean_histogram, measure_calibration_error

FIVE = ValueBins(0.0, 1.0, 5, 0.5)  # edges 0, .2, .., 1 and sigma .1
LIMITS = {"count": st.integers(2, 60), "ratio": st.floats(0.3, 4), "share": st.floats(-0.5, 1.5), "low": st.floats(-3, 3), "size": st.floats(0.1, 5)}


@pytest.mark.parametrize(
    ("target", "expected", "value"),
    [(0.35, [0.0666, 0.6248, 0.3024, 0.0062, 0.0000], 0.3496), (0.5, [0.0013, 0.1573, 0.6827, 0.1573, 0.0013], 0.5)],
)
def test_the_worked_examples_of_the_card(target, expected, value):
    spread = FIVE.spread(torch.tensor(target, dtype=torch.float64))
    assert spread.tolist() == pytest.approx(expected, abs=1e-4)
    assert FIVE.read(spread.log()).item() == pytest.approx(value, abs=1e-4)
    assert FIVE.sigma == pytest.approx(0.1)


@given(**LIMITS)
def test_a_target_becomes_probabilities_whose_mean_is_near_it(count, ratio, share, low, size):
    bins = ValueBins(low, low + size, count, ratio)
    target = torch.tensor([low + share * size], dtype=torch.float64)
    spread = bins.spread(target)
    assert spread.shape == (1, count)
    assert (spread >= 0).all()
    assert spread.sum().item() == pytest.approx(1.0)
    inside = min(max(share, 0.0), 1.0)
    edge = min(inside, 1 - inside) * size
    if edge > 4 * bins.sigma:  # nothing is cut off: only what a bin rounds is left
        assert bins.read(spread.clamp(min=1e-300).log()).item() == pytest.approx(target.item(), abs=size / count / 2)


def test_the_value_of_even_logits_is_the_middle_and_never_leaves_the_range():
    bins = ValueBins(-1.0, 1.0)
    assert bins.read(torch.zeros(3, 51)).tolist() == pytest.approx([0, 0, 0], abs=1e-6)
    values = bins.read(100 * torch.randn(50, 51, generator=torch.Generator().manual_seed(0)))
    assert values.abs().max() <= 1


@pytest.mark.parametrize("target", [-0.2, 0.0, 0.35, 1.0])
def test_the_gradient_is_prediction_minus_histogram(target):
    logits = torch.tensor([[0.3, -0.2, 0.5, 0.1, -1.0]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([target], dtype=torch.float64)
    FIVE.compute_loss(logits, targets).sum().backward()
    assert torch.allclose(logits.grad, logits.detach().softmax(-1) - FIVE.spread(targets))
    assert torch.autograd.gradcheck(lambda z: FIVE.compute_loss(z, targets), logits.detach().requires_grad_())


def test_the_loss_is_least_at_the_histogram_itself():
    targets = torch.tensor([0.35])
    best = FIVE.compute_loss(FIVE.spread(targets).clamp(min=1e-12).log(), targets)
    for seed in range(5):
        assert FIVE.compute_loss(torch.randn(1, 5, generator=torch.Generator().manual_seed(seed)), targets) > best


def test_a_bias_is_matched_in_one_step_and_empty_bins_are_not_lowered_without_end():
    logits, targets = torch.zeros(4, 5), FIVE.spread(torch.tensor([0.1, 0.1, 0.5, 0.9]))
    shift = match_mean_histogram(logits, targets, floor=1e-6)
    assert torch.allclose((logits + shift).softmax(-1).mean(0), targets.mean(0), atol=1e-4)
    empty = FIVE.spread(torch.tensor([0.1] * 4))
    for _ in range(20):
        logits = logits + match_mean_histogram(logits, empty)
    assert logits.min() > -15
    assert torch.isfinite(logits).all()


def test_calibration_error_is_the_mean_distance_within_bins_of_the_prediction():
    values, outcomes = torch.tensor([0.25, 0.25, 0.85, 0.85]), torch.tensor([0.0, 1.0, 1.0, 1.0])
    assert measure_calibration_error(values, outcomes, 0.0, 1.0) == pytest.approx((0.25 + 0.15) / 2)
    assert measure_calibration_error(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), 0.0, 1.0) == 0
    assert measure_calibration_error(torch.zeros(0), torch.zeros(0), 0.0, 1.0) == 0


def test_squared_error_needs_no_bins():
    assert choose_value_bins("mse", 0.0, 1.0) is None
    assert choose_value_bins("hl-gauss", -1.0, 1.0) == ValueBins(-1.0, 1.0, 51, 0.75)
