"""Credit for turns: returns, generalised advantages at one and two levels, means over shared nodes, scores compared by any key.

Shapes: R rows, K turns, T tokens, n values. Masks hold 1 (there) and 0; what is masked is passed over without a discount, as if it were not written.
"""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

EPSILON = 1e-4  # added to a standard deviation, as TRL does


def sum_returns(rewards: Tensor, mask: Tensor, gamma: float = 1.0) -> Tensor:
    """(R, K) rewards of turns -> (R, K) sums of what follows, each turn later counting ``gamma`` times less; 0 where masked."""
    made, running = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for place in reversed(range(rewards.shape[1])):
        there = mask[:, place].bool()
        running = torch.where(there, rewards[:, place] + gamma * running, running)
        made[:, place] = torch.where(there, running, torch.zeros_like(running))
    return made


def estimate_advantages(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    """(R, K) generalised advantages (GAE, arXiv 1506.02438): delta_k = r_k + gamma V_{k+1} - V_k, A_k = delta_k + gamma lam A_{k+1}.

    The value after the last turn is 0. The next turn of one is the next that is not masked: a token of the world between two of the policy takes
    neither a discount nor a value. 0 where masked.
    """
    made = torch.zeros_like(rewards)
    following, running = torch.zeros_like(rewards[:, 0]), torch.zeros_like(rewards[:, 0])
    for place in reversed(range(rewards.shape[1])):
        there = mask[:, place].bool()
        delta = rewards[:, place] + gamma * following - values[:, place]
        running = torch.where(there, delta + gamma * lam * running, running)
        following = torch.where(there, values[:, place], following)
        made[:, place] = torch.where(there, running, torch.zeros_like(running))
    return made


def estimate_token_advantages(turn_advantages: Tensor, values: Tensor, turns: Tensor, gamma: float, lam: float) -> Tensor:
    """(R, K) advantages of turns -> (R, T) of their tokens: the second level of a two-level GAE.

    ``values`` (R, T) of tokens, ``turns`` (R, T) the turn of each token, -1 = none. The last token of a turn has the turn's advantage, one before it
    gamma V_{t+1} - V_t + gamma lam A_{t+1}.
    """
    made = torch.zeros_like(values)
    following, running = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    last_turn = torch.full_like(turns[:, 0], -1)
    for place in reversed(range(values.shape[1])):
        turn = turns[:, place]
        there, is_last = turn >= 0, turn != last_turn
        own = turn_advantages.gather(1, turn.clamp(min=0)[:, None])[:, 0]
        inside = gamma * following - values[:, place] + gamma * lam * running
        running = torch.where(there, torch.where(is_last, own, inside), running)
        following = torch.where(there, values[:, place], following)
        last_turn = torch.where(there, turn, last_turn)
        made[:, place] = torch.where(there, running, torch.zeros_like(running))
    return made


def spread_turns(values: Tensor, turns: Tensor) -> Tensor:
    """(R, K) of turns -> (R, T) of their tokens; ``turns`` (R, T), -1 = none, which gets 0."""
    return values.gather(1, turns.clamp(min=0)) * (turns >= 0).to(values.dtype)


def average_nodes(values: Tensor, nodes: Tensor) -> Tensor:
    """(R,) or (R, T) of rows -> (R, T): each token gets the mean over the rows that hold its node (ARPO's hard credit).

    ``nodes`` (R, T): keys that are the same where rows share a node, -1 = none, which gets 0. A row counts once for each node, with the mean of its
    values there.
    """
    spread = values if values.dim() == 2 else values[:, None].expand(nodes.shape)
    made = torch.zeros_like(spread)
    for key in torch.unique(nodes).tolist():
        if key < 0:
            continue
        there = (nodes == key).to(spread.dtype)
        counts = there.sum(1)
        holds = counts > 0
        means = (spread * there).sum(1)[holds] / counts[holds]
        made = made + there * means.mean()
    return made


def centre_by_key(values: Tensor, keys: Sequence[Hashable]) -> Tensor:
    """(n,) -> (n,): each value minus the mean of those with its key; exactly 0 where they are all equal, as for one alone."""
    made = torch.zeros_like(values)
    for places in find_places(keys):
        own = values[places]
        if len(places) > 1 and own.max() != own.min():
            made[places] = own - own.mean()
    return made


def z_score_by_key(values: Tensor, keys: Sequence[Hashable], epsilon: float = EPSILON, ddof: int = 1) -> Tensor:
    """(n,) -> (n,): (value - mean) / (std + epsilon) among those with its key: role, turn number, problem. 0 for one alone and for equal values.

    Equal values are told by their range: rounding would leave a tiny deviation that a division turns into advantages near 1.
    """
    made = centre_by_key(values, keys)
    for places in find_places(keys):
        own = values[places]
        if len(places) > ddof and own.max() != own.min():
            made[places] = made[places] / (own.std(correction=ddof) + epsilon)
    return made


def z_score_unmasked(values: Tensor, mask: Tensor, epsilon: float = 1e-6) -> Tensor:
    """(B, T) -> (B, T): z-scores over all that is not masked; 0 where masked, and everywhere if all are equal."""
    own = values[mask.bool()]
    if len(own) < 2 or own.max() == own.min():
        return torch.zeros_like(values)
    return (values - own.mean()) / (own.std() + epsilon) * mask


def find_places(keys: Sequence[Hashable]) -> list[list[int]]:
    """The places of each different key."""
    found: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return list(found.values())


def pad_turns(values: Sequence[Sequence[float]], width: int) -> Tensor:
    """R lists of turns of different lengths -> (R, K) with K at least ``width``, 0 beyond them."""
    made = torch.zeros(len(values), max([width, *map(len, values)]))
    for row, own in enumerate(values):
        made[row, : len(own)] = torch.tensor(own)
    return made
