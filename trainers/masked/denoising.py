"""How a masked text is written: step by step, the surest positions first; with remasking (RemeDi, arXiv 2509.23653) tokens may be taken back.

After step n of N, K_n = ceil(n L / N) of the L writable positions hold a token. Without remasking a token stays once it is written. With remasking
the K_n positions are chosen anew in every step, by the confidence of the second head; all others are masked again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainers.masked.likelihood import draw_order, order_logprob


@dataclass(frozen=True)
class Denoising:
    steps: int
    temperature: float = 1.0  # of tokens; 0 takes the likeliest
    remasks: bool = False
    keeps_scores: bool = False
    draws_order: bool = False  # with remasking: positions are drawn by Plackett-Luce instead of the surest
    generator: torch.Generator | None = None  # None: torch's global random numbers


@dataclass
class Denoised:
    """``ids`` (B, S); ``logprobs`` (B,) of order and tokens, with remasking; ``remasked`` (B,) tokens taken back; ``history``: ids after each step.

    ``scores`` (B, S, V): the logits that each position's token was drawn from, where they are kept.
    """

    ids: Tensor
    logprobs: Tensor
    remasked: Tensor
    history: list[Tensor] = field(default_factory=list)
    orders: list[Tensor] = field(default_factory=list)  # of each step with remasking: (B, K) positions that were kept, -1 for none
    scores: Tensor | None = None


@torch.no_grad()
def denoise_tokens(model: Any, ids: Tensor, there: Tensor, writable: Tensor, how: Denoising) -> Denoised:
    """(B, S) ids with mask tokens, (B, S) 1 = there, (B, S) bool -> the written text."""
    was_training = model.training
    model.eval()
    try:
        state = Denoised(ids.clone(), torch.zeros(len(ids), device=ids.device), torch.zeros(len(ids), dtype=torch.long, device=ids.device))
        lengths = writable.sum(1)
        for step in range(1, how.steps + 1):
            take_step(model, state, there, writable, (step * lengths + how.steps - 1) // how.steps, how)
            state.history.append(state.ids.clone())
        return state
    finally:
        model.train(was_training)


def take_step(model: Any, state: Denoised, there: Tensor, writable: Tensor, counts: Tensor, how: Denoising) -> None:
    """Changes ``state``: afterwards ``counts`` (B,) writable positions of each row hold a token."""
    masked = (state.ids == model.mask_id) & writable
    output = model(input_ids=state.ids, attention_mask=there, with_confidence=how.remasks)
    tokens, token_logprobs = draw_tokens(output.logits.float(), model.mask_id, how)
    if how.remasks:
        scores = output.confidence.float().masked_fill(~writable, -torch.inf)
        order = draw_order(scores, counts, how.generator or new_generator() if how.draws_order else None)
        chosen = mark_positions(order, writable)
        state.orders.append(order)
        state.logprobs = state.logprobs + order_logprob(scores, order) + (token_logprobs * (chosen & masked)).sum(1)
        state.remasked = state.remasked + (writable & ~masked & ~chosen).sum(1)
    else:
        sure = token_logprobs.masked_fill(~masked, -torch.inf)
        wanted = (counts - (writable & ~masked).sum(1)).clamp(min=0)
        chosen = (writable & ~masked) | mark_positions(draw_order(sure, wanted, None), writable)
    written = torch.where(masked, tokens, state.ids)
    if how.keeps_scores:
        before = torch.zeros_like(output.logits) if state.scores is None else state.scores
        state.scores = torch.where((chosen & masked)[..., None], output.logits, before)
    state.ids = torch.where(writable, torch.where(chosen, written, torch.full_like(written, model.mask_id)), state.ids)


def score_trajectory(
    model: Any, start: Tensor, there: Tensor, writable: Tensor, history: Sequence[Tensor], orders: Sequence[Tensor], temperature: float
) -> Tensor:
    """(B,): log-probability, with gradient, of the orders and the new tokens of all steps (RemeDi, eq. of its joint policy). A pass a step."""
    total = torch.zeros(len(start), device=start.device)
    before = start
    for after, order in zip(history, orders, strict=True):
        output = model(input_ids=before, attention_mask=there, with_confidence=True)
        scores = output.confidence.float().masked_fill(~writable, -torch.inf)
        fresh = (before == start) & (after != start) & writable  # mask tokens of the start that now hold a token
        logits = output.logits.float().index_fill(-1, start[writable][:1], torch.finfo(torch.float32).min)
        logprobs = torch.log_softmax(logits / (temperature or 1.0), -1).gather(-1, after[..., None])[..., 0]
        total = total + order_logprob(scores, order) + torch.where(fresh, logprobs, torch.zeros_like(logprobs)).sum(1)
        before = after
    return total


def draw_tokens(logits: Tensor, mask_id: int, how: Denoising) -> tuple[Tensor, Tensor]:
    """(B, S, V) -> a token for each position (B, S), never the mask, and its log-probability (B, S) at the temperature."""
    logits = logits.clone()
    logits[..., mask_id] = -torch.inf
    logprobs = torch.log_softmax(logits / (how.temperature or 1.0), -1)
    if not how.temperature:
        tokens = logprobs.argmax(-1)
    else:
        flat = logprobs.exp().flatten(0, -2)
        tokens = torch.multinomial(flat, 1, generator=how.generator)[:, 0].view(logprobs.shape[:-1])
    return tokens, logprobs.gather(-1, tokens[..., None])[..., 0]


def mark_positions(order: Tensor, like: Tensor) -> Tensor:
    """(B, K) positions, -1 for none, (B, S) -> (B, S) bool."""
    marks = torch.zeros(like.shape[0], like.shape[1] + 1, dtype=torch.bool, device=like.device)
    places = torch.where(order >= 0, order, torch.full_like(order, like.shape[1]))
    return marks.scatter(1, places, True)[:, :-1]


def new_generator() -> torch.Generator:
    """Seeded by torch's global random numbers."""
    return torch.Generator().manual_seed(int(torch.randint(2**31, ())))
