"""Steers what a frozen policy writes: a vector is added to its last layer's hidden state while a hook is in place."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor


def add_residual(hidden: Tensor, residual: Tensor, beta: float) -> Tensor:
    """(B, D) and (B, D) unit vectors -> (B, D): moved by ``beta`` times its own length."""
    return hidden + beta * hidden.norm(dim=-1, keepdim=True) * residual.to(hidden)


@contextmanager
def inject_residual(model: Any, residual: Tensor, beta: float, tokens: int) -> Iterator[None]:
    """Inside, the last position of the next ``tokens`` forward passes, one for each token that is written, is steered.

    ``residual``: (B, D) unit vectors, one for each row of these passes. With ``beta`` 0 or no tokens nothing is hooked.
    """
    if not (beta and tokens):
        yield
        return
    left = [tokens]

    def steer(module: Any, inputs: Any, output: Any) -> Any:
        if left[0] <= 0:
            return output
        left[0] -= 1
        hidden = output[0] if isinstance(output, tuple) else output  # (B, S, D)
        steered = hidden.clone()
        steered[:, -1] = add_residual(hidden[:, -1], residual, beta)
        return (steered, *output[1:]) if isinstance(output, tuple) else steered

    hook = model.get_decoder().layers[-1].register_forward_hook(steer)
    try:
        yield
    finally:
        hook.remove()
