"""Shapley values of a few players, exact: what each adds to a worth, averaged over all orders in which they can join (Shapley, 1953)."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import factorial

Coalition = frozenset[str]
MOST_PLAYERS = 12  # 4096 coalitions


def list_coalitions(players: Sequence[str]) -> list[Coalition]:
    """All subsets, from the empty one up. Raises ValueError for more players than can be listed."""
    if len(players) > MOST_PLAYERS:
        raise ValueError(f"{len(players)} players have too many coalitions: {MOST_PLAYERS} are listed at most")
    return [frozenset(some) for size in range(len(players) + 1) for some in combinations(players, size)]


def compute_shapley_values(players: Sequence[str], worth: Mapping[Coalition, float]) -> dict[str, float]:
    """phi_f = sum over S without f of |S|! (n - |S| - 1)! / n! (v(S + f) - v(S)); they add up to v(all) - v(none)."""
    count = len(players)
    shares = [factorial(size) * factorial(count - size - 1) / factorial(count) for size in range(count)]
    return {
        player: sum(shares[len(some)] * (worth[some | {player}] - worth[some]) for some in list_coalitions([one for one in players if one != player]))
        for player in players
    }
