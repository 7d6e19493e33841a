"""Coupled log-probabilities of a batch of completions under a masked policy (DiffuCoder, arXiv 2506.20639).

The window that was written is scored as it was written: all of its positions, those behind a text's end as end tokens. Masks depend on nothing but
the seed and the row's own tokens, so that the old, the reference and the current policy are compared on the same ones, however a batch is split.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.masked.likelihood import couple_logprobs, draw_coupled_mask, draw_share, weigh_single_mask


@dataclass(frozen=True)
class Window:
    """``ids`` and ``there`` (B, P + W) with whole windows; ``mask`` (B, W) bool and ``shares`` (B, 1) of each row's coupled pair."""

    ids: Tensor
    there: Tensor
    mask: Tensor
    shares: Tensor

    @property
    def width(self) -> int:
        return self.mask.shape[1]


def open_window(ids: Tensor, there: Tensor, keep: int, width: int, end: int, seed: int) -> Window:
    """(B, P + T) ids and attention mask of prompts and T = ``keep`` completion tokens -> the window of ``width`` >= T positions."""
    written = torch.where(there[:, -keep:] > 0, ids[:, -keep:], torch.full_like(ids[:, -keep:], end))
    written = torch.nn.functional.pad(written, (0, width - keep), value=end)
    whole = torch.cat([ids[:, :-keep], written], 1)
    seen = torch.cat([there[:, :-keep], torch.ones_like(written)], 1)
    masks, shares = [], []
    for row, used in zip(whole.tolist(), seen.tolist(), strict=True):
        tokens = [token for token, is_there in zip(row, used, strict=True) if is_there]
        generator = torch.Generator().manual_seed(seed_of_row(tokens, seed))
        shares.append(draw_share(generator))
        masks.append(draw_coupled_mask(torch.zeros(width), shares[-1], generator))
    return Window(whole, seen, torch.stack(masks).to(ids.device), torch.tensor(shares, device=ids.device)[:, None])


def seed_of_row(tokens: list[int], seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(repr((seed, tokens)).encode(), digest_size=7).digest(), "big")


def score_window(model: Any, window: Window, mask_id: int, temperature: float) -> tuple[Tensor, Tensor]:
    """(B, W) coupled log-probabilities with gradient, and entropies (nats) of each token while one of the pair masks it. Three forward passes."""
    everything = torch.ones_like(window.mask)
    full, _ = score_masked(model, window, everything, mask_id, temperature)
    first, first_entropy = score_masked(model, window, window.mask, mask_id, temperature)
    second, second_entropy = score_masked(model, window, ~window.mask, mask_id, temperature)
    coupled = couple_logprobs(full, first, second, window.mask, window.shares)
    return coupled, torch.where(window.mask, first_entropy, second_entropy)


def score_by_one_mask(model: Any, window: Window, mask_id: int, temperature: float) -> tuple[Tensor, Tensor]:
    """The same by one random mask, 0 on the tokens that it leaves in sight. One forward pass."""
    first, entropies = score_masked(model, window, window.mask, mask_id, temperature)
    return weigh_single_mask(first, window.mask, window.shares), entropies


def score_masked(model: Any, window: Window, hidden: Tensor, mask_id: int, temperature: float) -> tuple[Tensor, Tensor]:
    """(B, W) log-probabilities and entropies of the window's tokens where ``hidden`` (B, W) ones are masked."""
    ids = window.ids.clone()
    targets = ids[:, -window.width :].clone()
    ids[:, -window.width :] = torch.where(hidden, torch.full_like(targets, mask_id), targets)
    logits = model(input_ids=ids, attention_mask=window.there, logits_to_keep=window.width).logits.float() / temperature
    logits = logits.index_fill(-1, torch.tensor([mask_id], device=logits.device), torch.finfo(logits.dtype).min)
    logprobs = torch.log_softmax(logits, -1)
    entropies = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(2, targets[..., None])[..., 0], entropies
