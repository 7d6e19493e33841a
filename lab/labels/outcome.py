"""What people agree on about one item. Pure: works on the rows it is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from lab.labels.models import COUNTING, Verdict


class Said(Protocol):
    """What is looked at of a judgement."""

    @property
    def verdict(self) -> str: ...
    @property
    def tiers(self) -> Any: ...  # list[list[int]], None of anything but a ranking
    @property
    def state(self) -> str: ...


S = TypeVar("S", bound=Said)


def opinions(judgements: Iterable[S]) -> list[S]:
    """Those that count: submitted or accepted, and no skip."""
    return [row for row in judgements if row.state in COUNTING and row.verdict != Verdict.SKIP]


def outcome(item: Any, judgements: Iterable[Said]) -> str | None:
    """The verdict of all who gave one; None when they differ or nobody did.

    Every difference is a conflict, also a tie against a side. Two rankings agree when they imply the same pairs. Strength, words, steps and
    spans may differ without a conflict.
    """
    said = opinions(judgements)
    if not said or any(not same(one, said[0]) for one in said[1:]):
        return None
    return said[0].verdict


def same(one: Said, other: Said) -> bool:
    return one.verdict == other.verdict and levels(one.tiers) == levels(other.tiers)


def levels(tiers: Sequence[Sequence[int]] | None) -> list[frozenset[int]]:
    """Complete rankings imply the same pairs exactly when their tiers are the same sets in the same order."""
    return [frozenset(tier) for tier in tiers or []]


def right(gold: dict[str, Any] | None, judgement: Said) -> bool | None:
    """Whether a judgement says what is known of the item; None where nothing is known or nothing was said."""
    if not gold or judgement.verdict == Verdict.SKIP:
        return None
    if judgement.verdict != gold.get("verdict"):
        return False
    return not gold.get("tiers") or levels(gold["tiers"]) == levels(judgement.tiers)
