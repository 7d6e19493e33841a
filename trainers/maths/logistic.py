"""Logistic regression on a few hundred features at most."""

import torch
from torch import Tensor

NEWTON_STEPS = 30


def fit_logistic_regression(inputs: Tensor, labels: Tensor, ridge: float) -> Tensor:
    """(n, d), (n,) of 0 and 1 -> (d,) float64 weights: the minimum of mean cross-entropy + ridge |w|^2 / 2, by Newton's method. No intercept."""
    inputs, labels = inputs.double(), labels.double()
    weights = inputs.new_zeros(inputs.shape[1])
    penalty = ridge * torch.eye(len(weights), dtype=torch.float64, device=inputs.device)
    for _ in range(NEWTON_STEPS):
        chances = torch.sigmoid(inputs @ weights)
        gradient = inputs.T @ (chances - labels) / len(labels) + penalty @ weights
        curvature = (inputs * (chances * (1 - chances))[:, None]).T @ inputs / len(labels) + penalty
        weights = weights - torch.linalg.solve(curvature, gradient)
    return weights
