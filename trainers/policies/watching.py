"""What ``generate`` of transformers knows while it samples and does not return, read by logits processors that change nothing.

A processor sees the logits before the choice and the choice only with the next logits, so the last token is added by ``finish``.
"""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import LogitsProcessor

from trainers.attempt.alternatives import Alternatives
from trainers.maths.top_tokens import TopTokens, find_top_tokens


class SampledLogprobs(LogitsProcessor):  # type: ignore[misc]
    """Log-probability at ``temperature`` of every sampled token: one sum over the vocabulary for each."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.waiting: torch.Tensor | None = None  # (B, V) logits of a choice not seen yet
        self.logprobs: list[torch.Tensor] = []  # T x (B,)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.choose(input_ids[:, -1])
        self.waiting = scores.float() / self.temperature
        return scores

    def choose(self, ids: torch.Tensor) -> None:
        if self.waiting is not None:
            self.logprobs.append(self.waiting.gather(1, ids[:, None])[:, 0] - self.waiting.logsumexp(1))

    def finish(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, T), given the last token of every row."""
        self.choose(ids)
        return torch.stack(self.logprobs, 1)


class TopTokenWatch(LogitsProcessor):  # type: ignore[misc]
    """The ``k`` likeliest tokens at ``temperature`` at every position of some ``rows`` of the batch."""

    def __init__(self, temperature: float, rows: Sequence[int], k: int) -> None:
        self.temperature, self.rows, self.k = temperature or 1.0, list(rows), k  # greedy: those of the unscaled distribution
        self.waiting: torch.Tensor | None = None  # (R, V) logits of a choice not seen yet
        self.found: list[TopTokens] = []  # T x (R, k)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.choose(input_ids[:, -1])
        self.waiting = scores[self.rows].float() / self.temperature
        return scores

    def choose(self, ids: torch.Tensor) -> None:
        if self.waiting is not None:
            self.found.append(find_top_tokens(self.waiting, ids[self.rows], self.k))

    def finish(self, ids: torch.Tensor) -> dict[int, Alternatives]:
        """By row of the batch, given the last token of every row."""
        self.choose(ids)
        tops, logprobs = (torch.stack([getattr(one, name) for one in self.found], 1).cpu().numpy() for name in ("ids", "logprobs"))  # (R, T, k)
        ranks = torch.stack([one.ranks for one in self.found], 1).cpu().numpy()  # (R, T)
        return {row: Alternatives(tops[i].astype(np.int64), logprobs[i], ranks[i].astype(np.int64)) for i, row in enumerate(self.rows)}
