"""Logistic regression: the fitted weights are where the objective is smallest."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.maths.logistic import fit_logistic_regression


@given(st.integers(0, 99), st.floats(0.001, 1))
def test_the_gradient_is_0_at_the_fitted_weights(seed, ridge):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    labels = (torch.rand(60, generator=generator) < torch.sigmoid(inputs[:, 0] - 2 * inputs[:, 1])).double()
    weights = fit_logistic_regression(inputs, labels, ridge).requires_grad_()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(inputs @ weights, labels) + ridge / 2 * weights.square().sum()
    loss.backward()
    assert weights.grad.abs().max() < 1e-8


def test_columns_that_separate_all_rows_have_finite_weights_and_more_of_a_penalty_makes_them_smaller():
    inputs, labels = torch.tensor([[1.0], [2.0], [-1.0]]), torch.tensor([1.0, 1.0, 0.0])
    light, heavy = (fit_logistic_regression(inputs, labels, ridge).item() for ridge in (1e-4, 1.0))
    assert light > heavy > 0
    assert light < 100
