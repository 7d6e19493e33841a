"""What people agree on about one item. Pure: works on the rows it is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from lab.labelling.labels.models import COUNTING, Verdict


class Opinion(Protocol):
    """What is looked at of a judgement."""

    @property
    def verdict(self) -> str: ...
    @property
    def tiers(self) -> Any: ...  # list[list[int]], None of anything but a ranking
    @property
    def state(self) -> str: ...


S = TypeVar("S", bound=Opinion)


def filter_opinions(judgements: Iterable[S]) -> list[S]:
    """Those that count: submitted or accepted, and no skip."""
    return [row for row in judgements if row.state in COUNTING and row.verdict != Verdict.SKIP]


def find_agreed_verdict(item: Any, judgements: Iterable[Opinion]) -> str | None:
    """The verdict of all who gave one; None when they differ or nobody did.

    Every difference is a conflict, also a tie against a side. Two rankings agree when they imply the same pairs. Strength, words, steps and
    spans may differ without a conflict.
    """
    opinions = filter_opinions(judgements)
    if not opinions or any(not is_same_judgement(opinion, opinions[0]) for opinion in opinions[1:]):
        return None
    return opinions[0].verdict


def is_same_judgement(first: Opinion, other: Opinion) -> bool:
    return first.verdict == other.verdict and to_tier_sets(first.tiers) == to_tier_sets(other.tiers)


def to_tier_sets(tiers: Sequence[Sequence[int]] | None) -> list[frozenset[int]]:
    """Complete rankings imply the same pairs exactly when their tiers are the same sets in the same order."""
    return [frozenset(tier) for tier in tiers or []]


def is_gold_match(gold: dict[str, Any] | None, judgement: Opinion) -> bool | None:
    """Whether a judgement says what is known of the item; None where nothing is known or nothing was said."""
    if not gold or judgement.verdict == Verdict.SKIP:
        return None
    if judgement.verdict != gold.get("verdict"):
        return False
    return not gold.get("tiers") or to_tier_sets(gold["tiers"]) == to_tier_sets(judgement.tiers)
