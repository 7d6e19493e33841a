"""The likeliest tokens at a position and the place of the one that was chosen, from logits or, without building them, from hidden states."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

ROWS, VOCABULARY = 1024, 32768  # of a tile of logits: 128 MiB in float32


@dataclass
class TopTokens:
    """N positions. ``ids`` and ``logprobs`` (N, k), likeliest first, nats; ``ranks`` (N,): place of the chosen token among all, 1 = the likeliest."""

    ids: Tensor
    logprobs: Tensor
    ranks: Tensor

    def __getitem__(self, part: slice) -> "TopTokens":
        return TopTokens(self.ids[part], self.logprobs[part], self.ranks[part])


def find_top_tokens(logits: Tensor, chosen: Tensor, k: int) -> TopTokens:
    """``logits`` (N, V) at the temperature of sampling, ``chosen`` (N,) ids. A vocabulary of fewer than k tokens gives all of it."""
    logits = logits.float()
    values, ids = logits.topk(min(k, logits.shape[-1]))
    own = logits.gather(1, chosen[:, None])
    return TopTokens(ids, values - logits.logsumexp(-1, keepdim=True), 1 + (logits > own).sum(1))


def find_top_tokens_in_tiles(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, chosen: Tensor, k: int, scale: Callable[[Tensor], Tensor]
) -> TopTokens:
    """As ``find_top_tokens`` of ``scale(hidden @ weight.T + bias)``; ``hidden`` (N, H), ``weight`` (V, H), ``bias`` (V,).

    Logits exist for one tile at a time, so memory does not grow with N times V. Ranks need a second look, when the chosen logit is known.
    """
    parts = [merge_tiles(hidden[start : start + ROWS], weight, bias, chosen[start : start + ROWS], k, scale) for start in range(0, len(hidden), ROWS)]
    return TopTokens(torch.cat([one.ids for one in parts]), torch.cat([one.logprobs for one in parts]), torch.cat([one.ranks for one in parts]))


def merge_tiles(hidden: Tensor, weight: Tensor, bias: Tensor | None, chosen: Tensor, k: int, scale: Callable[[Tensor], Tensor]) -> TopTokens:
    few = list(project_tiles(hidden, weight, bias, scale)) if len(weight) <= VOCABULARY else None
    values = hidden.new_empty((len(hidden), 0), dtype=torch.float32)
    ids = chosen.new_empty((len(hidden), 0))
    total = torch.full((len(hidden),), float("-inf"), device=hidden.device)
    own = torch.full_like(total, float("-inf"))
    for start, logits in few or project_tiles(hidden, weight, bias, scale):
        best, places = logits.topk(min(k, logits.shape[1]))
        values, order = torch.cat([values, best], 1).topk(min(k, values.shape[1] + best.shape[1]))
        ids = torch.cat([ids, places + start], 1).gather(1, order)
        total = torch.logaddexp(total, logits.logsumexp(1))
        place = chosen - start
        inside = (place >= 0) & (place < logits.shape[1])
        own = torch.where(inside, logits.gather(1, place.clamp(0, logits.shape[1] - 1)[:, None])[:, 0], own)
    above = torch.zeros_like(chosen)
    for _, logits in few or project_tiles(hidden, weight, bias, scale):
        above += (logits > own[:, None]).sum(1)
    return TopTokens(ids, values - total[:, None], 1 + above)


def project_tiles(hidden: Tensor, weight: Tensor, bias: Tensor | None, scale: Callable[[Tensor], Tensor]) -> Iterator[tuple[int, Tensor]]:
    """First id of each tile of the vocabulary and its logits (N, v), multiplied in the precision of ``hidden``."""
    for start in range(0, len(weight), VOCABULARY):
        logits = hidden @ weight[start : start + VOCABULARY].to(hidden.dtype).t()
        if bias is not None:
            logits = logits + bias[start : start + VOCABULARY].to(hidden.dtype)
        yield start, scale(logits.float())
