"""What differs between two sets of rows, pair by pair. Pure.

Rows are matched by what they say (``digest``), then by the contrary of it (flipped), then by item and rollouts, then by item and the worse answer
(changed text: a correction).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lab.data.datasets.models import Row, Version
from lab.data.datasets.rows import Made, hash_row_content, make_opposite_row, to_canonical_json

KINDS = {"added": "Added", "removed": "Removed", "flipped": "Flipped", "changed": "Changed", "moved": "Moved to the other split"}


@dataclass(frozen=True)
class Entry:
    row: dict[str, Any]
    digest: str
    split: str
    item: int | None
    rollouts: tuple[int, ...]
    provenance: dict[str, Any]
    labellers: tuple[int, ...]
    suspect: dict[str, Any]

    @property
    def place(self) -> Any:
        """Where it comes from, whichever side is preferred; None for imported rows."""
        return (self.item, tuple(sorted(self.rollouts)), self.row.get("label")) if self.item is not None else None

    @property
    def beaten(self) -> Any:
        """The pair by its worse answer: what stays when a correction takes the place of the better one."""
        return (self.item, self.rollouts[-1]) if self.item is not None and "chosen" in self.row and self.rollouts else None


@dataclass(frozen=True)
class Difference:
    kind: str
    before: Entry | None = None
    after: Entry | None = None

    @property
    def shown(self) -> Entry:
        return self.after or self.before  # type: ignore[return-value]  # one of them is there


def make_diff_entry(made: Made | Row) -> Entry:
    return Entry(
        made.row,
        made.digest,
        made.split,
        made.item,
        tuple(made.rollouts),
        made.provenance,
        tuple(made.labellers),
        made.suspect,
    )


def entries_of(version: Version) -> list[Entry]:
    return [make_diff_entry(row) for row in version.rows.order_by("split", "place").iterator(chunk_size=2000)]


def diff_entries(before: Iterable[Entry], after: Iterable[Entry]) -> list[Difference]:
    """In the order of ``after``, then what is only in ``before``."""
    left = Pool(before)
    found: list[tuple[int, Difference]] = []
    rest = []
    for place, one in enumerate(after):  # what says the same first, so that nothing else takes its partner
        if (same := left.take("digest", one.digest)) is not None:
            found += [(place, made) for made in compare_matched_entries(same, one)]
        else:
            rest.append((place, one))
    for kind, by, key in STEPS:
        unmatched = []
        for place, one in rest:
            partner = left.take(by, wanted) if (wanted := key(one)) is not None else None
            if partner is None:
                unmatched.append((place, one))
            else:
                found.append((place, Difference(kind, partner, one)))
        rest = unmatched
    found += [(place, Difference("added", None, one)) for place, one in rest]
    return [one for _, one in sorted(found, key=lambda pair: pair[0])] + [Difference("removed", one, None) for one in left.rest()]


def digest_opposite_row(one: Entry) -> str | None:
    return hash_row_content(make_opposite_row(one.row)) if "chosen" in one.row or "label" in one.row else None


STEPS: tuple[tuple[str, str, Callable[[Entry], Any]], ...] = (
    ("flipped", "digest", digest_opposite_row),
    ("changed", "place", lambda one: one.place),
    ("changed", "beaten", lambda one: one.beaten),
)


def compare_matched_entries(before: Entry, after: Entry) -> Iterator[Difference]:
    if to_canonical_json(fill_row_weight(before)) != to_canonical_json(fill_row_weight(after)):  # weight or margin
        yield Difference("changed", before, after)
    elif before.split != after.split:
        yield Difference("moved", before, after)


def fill_row_weight(one: Entry) -> dict[str, Any]:
    """The row with the weight that it has where none is written."""
    return {**one.row, "weight": one.row.get("weight", 1.0)}


class Pool:
    """Entries that have no partner yet, by what they may be found by."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries: dict[int, Entry] = dict(enumerate(entries))
        self.by: dict[str, defaultdict[Any, list[int]]] = {name: defaultdict(list) for name in ("digest", "place", "beaten")}
        for number, one in reversed(self.entries.items()):
            for name, numbers in self.by.items():
                if (key := getattr(one, name)) is not None:
                    numbers[key].append(number)

    def take(self, by: str, key: Any) -> Entry | None:
        numbers = self.by[by].get(key, [])
        while numbers:
            if (number := numbers.pop()) in self.entries:
                return self.entries.pop(number)
        return None

    def rest(self) -> list[Entry]:
        return list(self.entries.values())


def count_differences(found: Sequence[Difference]) -> dict[str, int]:
    counts = Counter(one.kind for one in found)
    return {kind: counts[kind] for kind in KINDS}
