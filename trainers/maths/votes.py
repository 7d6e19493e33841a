"""Votes of yes (1), no (0) or nothing that can be read (-1): their majority, and what it pays."""

from collections import Counter
from collections.abc import Sequence

UNREADABLE = -1


def find_majority(votes: Sequence[int]) -> int:
    """The most frequent vote, of equals the lower one; -1 for none."""
    counts = Counter(votes)
    return min(counts, key=lambda vote: (-counts[vote], vote), default=UNREADABLE)


def reward_votes(votes: Sequence[int]) -> list[float]:
    majority = find_majority(votes)
    return [-1.0 if vote == UNREADABLE else float(vote == majority) for vote in votes]


def is_worth_training(votes: Sequence[int], rule: bool) -> bool:
    """Whether 51 to 99 % of the votes agree, on what the rule says."""
    share = votes.count(find_majority(votes)) / len(votes) if votes else 0.0
    return 0.51 <= share <= 0.99 and find_majority(votes) == int(rule)


def reward_responder(rule: bool, majority: int) -> float:
    return max(float(rule), float(majority)) if majority != UNREADABLE else float(rule)
