"""Estimates of log-probabilities under a masked diffusion policy. Shapes: B rows, T tokens of completions, N positions, K of them chosen."""

import torch
from torch import Tensor

SHARES = (0.2, 0.8)  # of masked tokens, DiffuCoder's range


def draw_share(generator: torch.Generator, low: float = SHARES[0], high: float = SHARES[1]) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


def draw_coupled_mask(like: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """(B, T) -> (B, T) bool: M, each token with probability ``share``; the other mask of the pair is its complement."""
    return (torch.rand(like.shape, generator=generator) < share).to(like.device)


def couple_logprobs(full: Tensor, first: Tensor, second: Tensor, mask: Tensor, share: Tensor | float) -> Tensor:
    """(B, T) log-probabilities with all tokens masked, with M masked, with the complement masked; (B, T) bool M; its share, (B, 1) or one for all
    -> (B, T): the coupled estimate.

    Each token is scored once while it is masked by one of the pair, weighted by how likely that was, and once with everything masked (DiffuCoder,
    arXiv 2506.20639).
    """
    return (full + torch.where(mask, first / share, second / (1 - share))) / 2


def weigh_single_mask(first: Tensor, mask: Tensor, share: Tensor | float) -> Tensor:
    """(B, T), (B, T) bool -> (B, T): the estimate by one random mask, 0 where a token is not masked."""
    return torch.where(mask, first / share, torch.zeros_like(first))


def leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """(B,) -> (B,): reward minus the mean of the group's other members; 0 in a group of one."""
    groups = rewards.view(-1, group_size)
    if group_size == 1:
        return torch.zeros_like(rewards)
    others = (groups.sum(1, keepdim=True) - groups) / (group_size - 1)
    flat = groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)
    return torch.where(flat, torch.zeros_like(groups), groups - others).flatten()


def order_logprob(scores: Tensor, order: Tensor) -> Tensor:
    """(B, N) scores, -inf where a position cannot be chosen, (B, K) positions in their order -> (B,): Plackett-Luce log-probability of the order.

    Places of ``order`` that are -1 are none: rows may choose different numbers of positions.
    """
    there = order >= 0
    chosen = scores.gather(1, order.clamp(min=0))  # (B, K)
    left = torch.ones_like(scores, dtype=torch.bool)
    total = scores.new_zeros(len(scores))
    for place in range(order.shape[1]):
        rest = torch.logsumexp(scores.masked_fill(~left, -torch.inf), 1)
        total = total + torch.where(there[:, place], chosen[:, place] - rest, torch.zeros_like(rest))
        left = left.scatter(
            1, order[:, place : place + 1].clamp(min=0), ~there[:, place : place + 1] & left.gather(1, order[:, place : place + 1].clamp(min=0))
        )
    return total


def draw_order(scores: Tensor, counts: Tensor, generator: torch.Generator | None) -> Tensor:
    """(B, N) scores, (B,) how many -> (B, K) positions, -1 after each row's own: the highest first, or drawn by Plackett-Luce (Gumbel noise)."""
    noisy = scores
    if generator is not None:
        uniform = torch.rand(scores.shape, generator=generator).clamp(1e-12, 1 - 1e-7).to(scores)
        noisy = scores - torch.log(-torch.log(uniform))
    most = int(counts.max()) if counts.numel() else 0
    order = noisy.topk(most, 1).indices  # (B, K)
    return order.masked_fill(torch.arange(most, device=order.device) >= counts[:, None], -1)
