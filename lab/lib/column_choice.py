"""Which columns of a table a person sees, in which order, and which stay at its left edge: as an address carries it and as it is remembered.

``cols`` lists what differs from the usual table: ``-task,loss`` hides the task and shows the loss, ``^name`` pins the name to the left, and after
``*order`` the columns stand as they are listed. Names are percent-encoded, because reward functions are called anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar
from urllib.parse import quote, unquote

ADDRESS_KEY = "cols"
LONGEST = 4000  # characters of ``cols``
MOST_COLUMNS = 120  # names in it
MOST_PINS = 8  # columns that stay at the left edge
ORDER = "*order"  # a switch: no name, whose asterisk would be encoded


class Column(Protocol):
    """``usual``: seen unless hidden."""

    @property
    def name(self) -> str: ...
    @property
    def usual(self) -> bool: ...


C = TypeVar("C", bound=Column)


@dataclass(frozen=True)
class ColumnChoice:
    """What a person changed about the usual columns. ``switches``, which begin with an asterisk, say what else a table does."""

    shown: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    pinned: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    switches: frozenset[str] = frozenset()

    @classmethod
    def read(cls, text: str) -> Self:
        parts = [part for part in text[:LONGEST].split(",")[:MOST_COLUMNS] if part]
        names = [part for part in parts if not part.startswith(("*", "-"))]
        return cls(
            frozenset(unquote(name.removeprefix("^")) for name in names),
            frozenset(unquote(part[1:]) for part in parts if part.startswith("-") and len(part) > 1),
            tuple(dict.fromkeys(unquote(name[1:]) for name in names if name.startswith("^"))),
            tuple(dict.fromkeys(unquote(name.removeprefix("^")) for name in names)) if ORDER in parts else (),
            frozenset(part for part in parts if part.startswith("*") and part != ORDER),
        )

    @classmethod
    def of(cls, columns: Iterable[Column], wanted: Iterable[str], pinned: Collection[str] = (), switches: Collection[str] = ()) -> Self:
        """The choice under which, of ``columns``, those named in ``wanted`` are seen, in its order, those in ``pinned`` before the others."""
        offered = {column.name: column for column in columns}
        seen = [name for name in dict.fromkeys(wanted) if name in offered]
        left, rest = tuple(name for name in seen if name in pinned), [name for name in seen if name not in pinned]
        as_usual = rest == [name for name in offered if name in rest]
        return cls(
            frozenset(name for name in seen if not offered[name].usual),
            frozenset(name for name, column in offered.items() if column.usual and name not in seen),
            left,
            () if as_usual else (*left, *rest),
            frozenset(switches),
        )

    def __str__(self) -> str:
        hidden = [f"-{_quote_name(name)}" for name in sorted(self.hidden)]
        pinned = [f"^{_quote_name(name)}" for name in self.pinned]
        listed = self.order or sorted(self.shown)
        rest = [_quote_name(name) for name in listed if name not in self.pinned]
        return ",".join([*sorted(self.switches), *hidden, *([ORDER] if self.order else []), *pinned, *rest])

    def sees(self, column: Column) -> bool:
        return column.name in self.shown or (column.usual and column.name not in self.hidden)

    def arrange(self, columns: Sequence[C]) -> list[C]:
        """The columns that are seen, as they stand in the table: pinned ones first, and what the order does not know last."""
        places = {name: place for place, name in enumerate(self.order)}
        pins = {name: place for place, name in enumerate(self.pinned)}
        seen = sorted((column for column in columns if self.sees(column)), key=lambda column: places.get(column.name, len(places)))
        return sorted(seen, key=lambda column: pins.get(column.name, len(pins)))

    @property
    def pins(self) -> dict[str, str]:
        """Classes of the cells of pinned columns by name, and under the empty name of the boxes to tick before them; empty without any."""
        places = {name: f" pinned pin-{place}" for place, name in enumerate(self.pinned[:MOST_PINS], 1)}
        return {"": " pinned pin-0", **places} if places else {}

    def describe_choices(self, columns: Sequence[C]) -> list[tuple[C, bool, bool]]:
        """(column, seen, pinned) for the menu: those that are seen first, in their order."""
        seen = self.arrange(columns)
        rest = [column for column in columns if not self.sees(column)]
        return [*((column, True, column.name in self.pinned) for column in seen), *((column, False, False) for column in rest)]


def _quote_name(name: str) -> str:
    """A minus at the start of a name would hide it."""
    quoted = quote(name, safe="")
    return f"%2D{quoted[1:]}" if quoted.startswith("-") else quoted
