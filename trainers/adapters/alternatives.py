"""The likeliest tokens of some rollouts, from the hidden states of a forward pass that TRL runs anyway.

TRL's fused head never builds the logits: it multiplies hidden states with the head in tiles and returns the log-probability of the sampled token.
What it is called with is heard here, and the head is applied once more to the rows that keep alternatives, with TRL's own scale, soft cap and
temperature. The pass is the one whose log-probabilities are stored: TRL's pass right after sampling where it runs one, else the first of the loss.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from trl.trainer import utils

from trainers.attempt.alternatives import Alternatives, keeps_alternatives
from trainers.contract.spec import Telemetry
from trainers.maths.top_tokens import TopTokens, find_top_tokens, find_top_tokens_in_tiles


@dataclass
class HeadCall:
    """What TRL's fused head was called with: ``hidden`` (N, H), ``weight`` (V, H), ``bias`` (V,) or None; ``dtype`` is what it multiplies in."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    temperature: float
    softcap: float | None
    scale: float
    dtype: torch.dtype

    def find(self, places: Tensor, chosen: Tensor, k: int) -> TopTokens:
        """Of the hidden states at ``places`` (n,), after which ``chosen`` (n,) came."""
        scale = partial(scale_logits, scale=self.scale, softcap=self.softcap, temperature=self.temperature)
        return find_top_tokens_in_tiles(self.hidden[places].to(self.dtype), self.weight, self.bias, chosen, k, scale)


def scale_logits(logits: Tensor, scale: float, softcap: float | None, temperature: float) -> Tensor:
    """As the model scales and caps them, then by the temperature."""
    logits = logits * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return logits / temperature


@contextmanager
def hear_head() -> Iterator[list[HeadCall]]:
    """Inside the block every call of TRL's fused head is kept; what it returns is untouched."""
    calls: list[HeadCall] = []
    original = utils._ChunkedLogProbFunction

    class Heard:
        @staticmethod
        def apply(
            hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, heat: float, chunk: int, softcap: Any, scale: Any, *rest: Any
        ) -> Any:
            kind = hidden.device.type
            dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype  # as the head itself decides
            calls.append(HeadCall(hidden.detach(), weight.detach(), None if bias is None else bias.detach(), heat, softcap, scale, dtype))
            return original.apply(hidden, weight, bias, targets, heat, chunk, softcap, scale, *rest)

    utils._ChunkedLogProbFunction = Heard
    try:
        yield calls
    finally:
        utils._ChunkedLogProbFunction = original


class AlternativesRecorder:
    """Of one generation batch after the other: ``found`` has the rows whose alternatives are known."""

    def __init__(self, wanted: Telemetry, seed: int) -> None:
        self.share, self.k, self.seed = wanted.alternatives_share, wanted.alternatives, seed
        self.chosen: frozenset[int] = frozenset()
        self.found: dict[int, Alternatives] = {}
        self.first_row = 0
        self.after_sample = False  # TRL's next pass is the one right after sampling

    def begin(self, step: int, groups: Sequence[int], scored_next: bool, first_row: int = 0) -> None:
        """A new batch, whose row r is of ``groups[r]``: whole groups are chosen, so that answers to one prompt can be compared. ``first_row``: of
        this process, where several sample a batch."""
        self.first_row = first_row
        kept = {group for group in set(groups) if keeps_alternatives(self.share, self.seed, "train", step, group)}
        self.chosen = frozenset(row for row, group in enumerate(groups) if group in kept)
        self.found, self.after_sample = {}, scored_next

    @contextmanager
    def after_sampling(self, ids: Tensor, there: Tensor, keep: int, size: int | None) -> Iterator[None]:
        """Around a pass over the whole batch, ``size`` rows at a time; only the one right after sampling is listened to."""
        if not self.chosen or not self.after_sample:
            yield
            return
        self.after_sample = False
        with self.listen(range(self.first_row, self.first_row + len(ids)), ids, there, keep, size or len(ids)):
            yield

    @contextmanager
    def in_loss(self, rows: Tensor, ids: Tensor, there: Tensor, keep: int) -> Iterator[None]:
        """Around the pass of a slice of the batch, row by row ``rows`` (B,)."""
        if not self.chosen:
            yield
            return
        with self.listen(rows.tolist(), ids, there, keep, len(ids)):
            yield

    def missing(self, rows: Sequence[int]) -> list[int]:
        """Places in ``rows`` whose alternatives are wanted and not known yet."""
        return [place for place, row in enumerate(rows) if row in self.chosen and row not in self.found]

    @contextmanager
    def listen(self, rows: Sequence[int], ids: Tensor, there: Tensor, keep: int, size: int) -> Iterator[None]:
        places = self.missing(rows)
        if not places:
            yield
            return
        with hear_head() as calls:
            yield
        for number, call in enumerate(calls):
            mine = [place for place in places if number * size <= place < (number + 1) * size]
            part = slice(number * size, (number + 1) * size)
            if mine:
                self.read_call(call, [rows[place] for place in mine], [place - part.start for place in mine], ids[part], there[part], keep)

    @torch.no_grad()
    def read_call(self, call: HeadCall, rows: Sequence[int], places: Sequence[int], ids: Tensor, there: Tensor, keep: int) -> None:
        """``ids`` and ``there`` (b, L) are those of the call; ``places`` in it are the rows of the batch with the numbers ``rows``."""
        scored = there[:, 1:].bool().clone()  # (b, L - 1): where TRL's labels are not -100
        scored[:, : scored.shape[1] - keep] = False
        # TRL gives the head the scored positions alone where it has Triton, else all of them.
        every = len(call.hidden) == scored.numel()
        numbers = torch.arange(scored.numel(), device=ids.device) if every else scored.flatten().cumsum(0) - 1
        chosen = scored[list(places)]  # (n, L - 1)
        if not chosen.any():
            return
        top = call.find(numbers.view_as(scored)[list(places)][chosen], ids[list(places), 1:][chosen], self.k)
        ends = chosen.sum(1).cumsum(0).tolist()
        for row, start, end in zip(rows, [0, *ends], ends, strict=False):
            self.keep(row, top[start:end])

    @torch.no_grad()
    def read_logits(self, rows: Tensor, logits: Tensor, ids: Tensor, there: Tensor, keep: int) -> None:
        """Where a method has the logits (B, T, V) built, at the sampling temperature."""
        numbers = rows.tolist() if self.chosen else []
        for place in self.missing(numbers):
            mine = there[place, -keep:].bool()
            self.keep(numbers[place], find_top_tokens(logits[place][mine].detach(), ids[place, -keep:][mine], self.k))

    def keep(self, row: int, top: TopTokens) -> None:
        ids, logprobs, ranks = (values.cpu().numpy() for values in (top.ids, top.logprobs, top.ranks))
        self.found[row] = Alternatives(ids.astype(np.int64), logprobs.astype(np.float32), ranks.astype(np.int64))
