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
from lab.data.datasets.rows import BuiltRow, hash_row_content, make_opposite_row, to_canonical_json

KINDS = {"added": "Added", "removed": "Removed", "flipped": "Flipped", "changed": "Changed", "moved": "Moved to the other split"}


@dataclass(frozen=True)
class DiffEntry:
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
class RowDifference:
    kind: str
    before: DiffEntry | None = None
    after: DiffEntry | None = None

    @property
    def entry(self) -> DiffEntry:
        return self.after or self.before  # type: ignore[return-value]  # one of them is there


def make_diff_entry(row: BuiltRow | Row) -> DiffEntry:
    return DiffEntry(
        row.row,
        row.digest,
        row.split,
        row.item,
        tuple(row.rollouts),
        row.provenance,
        tuple(row.labellers),
        row.suspect,
    )


def entries_of(version: Version) -> list[DiffEntry]:
    return [make_diff_entry(row) for row in version.rows.order_by("split", "place").iterator(chunk_size=2000)]


def diff_entries(before: Iterable[DiffEntry], after: Iterable[DiffEntry]) -> list[RowDifference]:
    """In the order of ``after``, then what is only in ``before``."""
    left = UnmatchedEntries(before)
    differences: list[tuple[int, RowDifference]] = []
    rest = []
    for index, entry in enumerate(after):  # what says the same first, so that nothing else takes its partner
        if (same := left.take("digest", entry.digest)) is not None:
            differences += [(index, difference) for difference in compare_matched_entries(same, entry)]
        else:
            rest.append((index, entry))
    for kind, by, key in STEPS:
        unmatched = []
        for index, entry in rest:
            partner = left.take(by, value) if (value := key(entry)) is not None else None
            if partner is None:
                unmatched.append((index, entry))
            else:
                differences.append((index, RowDifference(kind, partner, entry)))
        rest = unmatched
    differences += [(index, RowDifference("added", None, entry)) for index, entry in rest]
    return [difference for _, difference in sorted(differences, key=lambda pair: pair[0])] + [
        RowDifference("removed", entry, None) for entry in left.rest()
    ]


def digest_opposite_row(entry: DiffEntry) -> str | None:
    return hash_row_content(make_opposite_row(entry.row)) if "chosen" in entry.row or "label" in entry.row else None


STEPS: tuple[tuple[str, str, Callable[[DiffEntry], Any]], ...] = (
    ("flipped", "digest", digest_opposite_row),
    ("changed", "place", lambda entry: entry.place),
    ("changed", "beaten", lambda entry: entry.beaten),
)


def compare_matched_entries(before: DiffEntry, after: DiffEntry) -> Iterator[RowDifference]:
    if to_canonical_json(fill_row_weight(before)) != to_canonical_json(fill_row_weight(after)):  # weight or margin
        yield RowDifference("changed", before, after)
    elif before.split != after.split:
        yield RowDifference("moved", before, after)


def fill_row_weight(entry: DiffEntry) -> dict[str, Any]:
    """The row with the weight that it has where none is written."""
    return {**entry.row, "weight": entry.row.get("weight", 1.0)}


class UnmatchedEntries:
    """Entries that have no partner yet, by what they may be found by."""

    def __init__(self, entries: Iterable[DiffEntry]) -> None:
        self.entries: dict[int, DiffEntry] = dict(enumerate(entries))
        self.by: dict[str, defaultdict[Any, list[int]]] = {name: defaultdict(list) for name in ("digest", "place", "beaten")}
        for number, entry in reversed(self.entries.items()):
            for name, numbers in self.by.items():
                if (key := getattr(entry, name)) is not None:
                    numbers[key].append(number)

    def take(self, by: str, key: Any) -> DiffEntry | None:
        numbers = self.by[by].get(key, [])
        while numbers:
            if (number := numbers.pop()) in self.entries:
                return self.entries.pop(number)
        return None

    def rest(self) -> list[DiffEntry]:
        return list(self.entries.values())


def count_differences(differences: Sequence[RowDifference]) -> dict[str, int]:
    counts = Counter(difference.kind for difference in differences)
    return {kind: counts[kind] for kind in KINDS}
