"""From judgements to what coefficients are made of: units, who labelled them, and in which category.

A ranking is compared by the pairs it implies, a tie being a category of its own; a single answer by its verdict; its step labels apart. Skips say
nothing and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from lab.labelling.labels.models import Judgement, Kind, Queue, Verdict
from lab.labelling.quality.coefficients import Counts, Places

CATEGORIES: dict[str, tuple[str, ...]] = {
    Kind.PAIR: (Verdict.A, Verdict.TIE, Verdict.BAD, Verdict.B),
    Kind.RANKING: (Verdict.A, Verdict.TIE, Verdict.B),
    Kind.SINGLE: (Verdict.BAD, Verdict.NEUTRAL, Verdict.GOOD),
    Kind.CLEARER: (Verdict.FIRST, Verdict.TIE, Verdict.SECOND),
}
STRENGTHS = 3
USUAL_STRENGTH = 2  # of a side chosen without saying how much better it is, where others say so
MARKS = ("bad", "neutral", "good")


@dataclass(frozen=True)
class RatingTable:
    """One entry a label (k,): its unit, its labeller (a place in ``people``), its category, and the category in order of strength.

    ``items`` (N,): the item of each unit; ``people``: user ids. There are ``size`` categories and ``levels`` of them in order.
    """

    units: Places
    labellers: Places
    codes: Places
    ordered: Places
    items: Places
    people: list[int]
    size: int
    levels: int

    def counts(self, ordered: bool = False) -> Counts:
        """(N, C): how many labellers put each unit into each category."""
        size = self.levels if ordered else self.size
        places = self.units * size + (self.ordered if ordered else self.codes)
        return np.bincount(places, minlength=len(self.items) * size).reshape(len(self.items), size).astype(np.int64)

    def by_labeller(self) -> Counts:
        """(N, L): the category, -1 where the labeller gave none."""
        table = np.full((len(self.items), len(self.people)), -1, dtype=np.int64)
        table[self.units, self.labellers] = self.codes
        return table


def ratings_of(queue: Queue) -> RatingTable:
    """Of all judgements that count, on items that at least two people judged."""
    rows = list_overlapping_judgements(queue).values_list("item_id", "user_id", "verdict", "strength", "tiers")
    return collect_ratings(queue.kind, rows, bool(queue.strength))


def step_ratings_of(queue: Queue) -> RatingTable:
    """Good, neutral or bad of each reasoning step that somebody marked."""
    rows = list_overlapping_judgements(queue).values_list("item_id", "user_id", "steps")
    labels = [((item, step["start"]), item, user, MARKS.index(step["mark"])) for item, user, steps in rows for step in steps]
    return build_ratings([(unit, item, user, code, code) for unit, item, user, code in labels], len(MARKS), len(MARKS))


def list_overlapping_judgements(queue: Queue) -> Any:
    return Judgement.objects.filter(queue=queue, item__labels__gte=2).counting().exclude(verdict=Verdict.SKIP).order_by("item_id", "pk")


def collect_ratings(kind: str, rows: Iterable[tuple[int, int, str, int | None, Any]], strengths: bool) -> RatingTable:
    """``rows``: (item, user, verdict, strength, tiers). Fast where a unit is an item: a large queue has hundreds of thousands of labels."""
    categories = CATEGORIES[kind]
    levels = 2 * STRENGTHS + 1 if kind == Kind.PAIR and strengths else len(MARKS)
    if kind != Kind.RANKING:
        codes = {verdict: code for code, verdict in enumerate(categories)}
        ordered = {(verdict, strength): find_ordinal_level(kind, verdict, strength, levels) for verdict in categories for strength in (None, 1, 2, 3)}
        codings = [(item, user, codes[verdict], ordered[verdict, strength]) for item, user, verdict, strength, _ in rows if verdict in codes]
        table = np.array(codings, dtype=np.int64).reshape(-1, 4)
        items, units = np.unique(table[:, 0], return_inverse=True)
        people, labellers = np.unique(table[:, 1], return_inverse=True)
        return RatingTable(units, labellers, table[:, 2], table[:, 3], items, people.tolist(), len(categories), levels)
    labels = [
        ((item, *pair), item, user, code, code)
        for item, user, _, _, tiers in rows
        for pair, side in implied_verdicts(tiers or [])
        for code in [categories.index(side)]
    ]
    return build_ratings(labels, len(categories), levels)


def find_ordinal_level(kind: str, verdict: str, strength: int | None, levels: int) -> int:
    """Where a verdict stands in order. Of pairs from "first much better" to "second much better"; ties and both bad stand in the middle."""
    if kind == Kind.PAIR and verdict not in (Verdict.A, Verdict.B):
        return levels // 2
    if kind == Kind.PAIR:
        far = min(strength or USUAL_STRENGTH, levels // 2)
        return levels // 2 + (far if verdict == Verdict.B else -far)
    return CATEGORIES[kind].index(verdict)


def implied_verdicts(tiers: Sequence[Sequence[int]]) -> Iterable[tuple[tuple[int, int], str]]:
    """Each two places of a ranking, the lower first, and which of them is better."""
    tier_of = {index: tier for tier, places in enumerate(tiers) for index in places}
    for first, second in combinations(sorted(tier_of), 2):
        difference = tier_of[first] - tier_of[second]
        yield (first, second), Verdict.TIE if not difference else Verdict.A if difference < 0 else Verdict.B


def build_ratings(labels: Sequence[tuple[Any, int, int, int, int]], size: int, levels: int) -> RatingTable:
    """``labels``: (unit, item, user, category, category in order)."""
    units: dict[Any, int] = {}
    items: list[int] = []
    people: dict[int, int] = {}
    rows = np.zeros((len(labels), 4), dtype=np.int64)
    for row, (unit, item, user, code, ordered) in enumerate(labels):
        if unit not in units:
            units[unit] = len(units)
            items.append(item)
        rows[row] = units[unit], people.setdefault(user, len(people)), code, ordered
    return RatingTable(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], np.array(items, dtype=np.int64), list(people), size, levels)
