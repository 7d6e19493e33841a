"""What a masked diffusion policy is trained on: texts with masked and, for remasking, with wrong tokens (RemeDi, arXiv 2509.23653)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Corrupted:
    """(B, S) each. ``wrong`` and ``masked``: bool, disjoint, writable positions only."""

    ids: Tensor
    masked: Tensor
    wrong: Tensor


def count_corrupted(share: float, rate: float, length: int) -> tuple[int, int]:
    """(masked, wrong) tokens of ``length`` at time ``share``: ceil(t L) and ceil(4 r t (1 - t) (1 - t) L), the wrong ones fewer than the masked."""
    masked = math.ceil(share * length)
    wrong = math.ceil(4 * rate * share * (1 - share) * (1 - share) * length) if rate else 0
    return masked, max(0, min(wrong, masked - 1, length - masked))


def corrupt_tokens(ids: Tensor, writable: Tensor, shares: Tensor, rate: float, mask_id: int, generator: torch.Generator) -> Corrupted:
    """(B, S) clean ids, (B, S) bool where tokens may change, (B,) times in (0, 1] -> the corrupted text.

    Wrong tokens are other tokens of the same batch's writable positions, so that they are plausible at least as words.
    """
    noise = torch.rand(ids.shape, generator=generator).to(ids.device).masked_fill(~writable, 2.0)
    rank = noise.argsort(1).argsort(1)  # writable positions first, in random order
    counts = [count_corrupted(float(share), rate, int(length)) for share, length in zip(shares, writable.sum(1), strict=True)]
    masked_count, wrong_count = (torch.tensor(values, device=ids.device)[:, None] for values in zip(*counts, strict=True))
    masked = (rank < masked_count) & writable
    wrong = (rank >= masked_count) & (rank < masked_count + wrong_count) & writable
    words = ids[writable]
    other = words[torch.randint(len(words), ids.shape, generator=generator).to(ids.device)]
    wrong = wrong & (other != ids)  # drawn by chance, the right token is not wrong
    return Corrupted(torch.where(masked, torch.full_like(ids, mask_id), torch.where(wrong, other, ids)), masked, wrong)


def token_loss(logits: Tensor, ids: Tensor, corrupted: Corrupted) -> Tensor:
    """(B, S, V), (B, S) clean -> scalar: cross-entropy on masked and on wrong positions, a mean over them."""
    there = corrupted.masked | corrupted.wrong
    return functional.cross_entropy(logits[there].float(), ids[there])


def confidence_loss(confidence: Tensor, logits: Tensor, ids: Tensor, writable: Tensor, corrupted: Corrupted) -> Tensor:
    """(B, S), (B, S, V), (B, S) -> scalar: binary cross-entropy of the confidence on writable positions.

    Its target is 1 on clean tokens, 0 on wrong ones, and the probability of the clean token on masked ones, which it is not to change.
    """
    likely = torch.softmax(logits.detach().float(), -1).gather(2, ids[..., None])[..., 0]
    target = torch.where(corrupted.masked, likely, (~corrupted.wrong).to(likely.dtype))
    return functional.binary_cross_entropy_with_logits(confidence[writable].float(), target[writable])
