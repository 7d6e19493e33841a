"""Rows of ids of different lengths as batches that one forward pass takes, padded on the right."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def iterate_padded_batches(rows: Sequence[Sequence[int]], size: int, pad: int, device: Any) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(place of its first row, (B, T) ids, (B, T) mask) of at most ``size`` rows at a time, in order."""
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        width = max(map(len, some))
        ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in some], device=device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in some], device=device)
        yield start, ids, mask
