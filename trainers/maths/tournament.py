"""A round robin between classes of candidates: which of several answers to take, given a judge of two."""

from collections.abc import Callable, Sequence


def group_by_result(results: Sequence[str]) -> list[list[int]]:
    """Places of equal results, one list for each, in the order in which they first occur."""
    groups: dict[str, list[int]] = {}
    for place, result in enumerate(results):
        groups.setdefault(result, []).append(place)
    return list(groups.values())


def count_wins(count: int, beats: Callable[[int, int], bool]) -> list[int]:
    """W_i = number of the others that i beats; ``beats(i, j)`` is asked once for every pair i < j, and False is a win of j."""
    wins = [0] * count
    for one in range(count):
        for other in range(one + 1, count):
            wins[one if beats(one, other) else other] += 1
    return wins


def pick_winner(wins: Sequence[int], sizes: Sequence[int]) -> int:
    """The place with the most wins; among equals that of the larger class, then the first."""
    return max(range(len(wins)), key=lambda place: (wins[place], sizes[place], -place))


def pick_majority(sizes: Sequence[int]) -> int:
    """The largest class, the first among equals."""
    return max(range(len(sizes)), key=lambda place: (sizes[place], -place))
