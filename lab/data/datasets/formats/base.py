"""What a format is: how its files are known, what becomes of each column, and how a row of it becomes a row of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.data.datasets.models import Form

Row = dict[str, Any]
Values = Mapping[str, Any]  # part -> the value of its column; None where there is none
MESSAGE_KEYS = frozenset(("role", "from", "content", "value", "name", "tool_calls", "tool_call_id", "function_call", "weight"))
EMPTY: tuple[Any, ...] = (None, "", [], {})


@dataclass(frozen=True)
class FormatPart:
    """What a format takes from one column. ``names``: what the column is called, likeliest first; ``keys``: what is read of objects in it."""

    name: str
    words: str
    names: tuple[str, ...]
    needed: bool = True
    keys: frozenset[str] | None = MESSAGE_KEYS  # None: whatever is in them


@dataclass(frozen=True)
class ColumnMapping:
    """How rows are read: the format, the column of each part, and the values that settings of the format name."""

    format: str
    columns: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ConvertedRow:
    row: Row
    scores: Mapping[str, float] = field(default_factory=dict)


def one_level(row: Row) -> Row:
    return row


def allows_any_rows(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    return True


def make_empty_mapping(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, str]:
    return {}


def no_more(row: Row, mapped: ColumnMapping) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Format:
    """``fits`` looks at the first rows once every needed part has its column. ``find`` gives columns whose names differ from file to file.

    ``settings``: (name, words) of values a person may have to name; ``prefill`` guesses them. ``reads``: columns read beside those of the parts.
    """

    name: str
    title: str
    words: str
    form: Form
    parts: tuple[FormatPart, ...]
    convert: Callable[[Values, ColumnMapping, Row], ConvertedRow]
    fits: Callable[[Sequence[Row], Mapping[str, str]], bool] = allows_any_rows
    flat: Callable[[Row], Row] = one_level
    find: Callable[[Sequence[Row], Mapping[str, str]], dict[str, str]] = make_empty_mapping
    settings: tuple[tuple[str, str], ...] = ()
    prefill: Callable[[Sequence[Row], Mapping[str, str]], dict[str, str]] = make_empty_mapping
    reads: Callable[[Row, ColumnMapping], Iterable[str]] = no_more
    by_hand: bool = False  # a person chooses the columns
    chooses: bool = False  # a known format whose columns have no fixed names

    def missing(self, mapped: ColumnMapping) -> list[str]:
        """Parts without a column, and settings without a value."""
        parts = [part.name for part in self.parts if part.needed and not mapped.columns.get(part.name)]
        return parts + [name for name, _ in self.settings if not mapped.settings.get(name)]


def expand_nested_columns(row: Row) -> Row:
    """Objects in a column become columns of their own: ``{"data": {"text1": …}}`` gives ``data.text1``. A message stays as it is."""
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, dict) and value and not {"role", "from"} & value.keys():
            flat |= {f"{name}.{inner}": own for inner, own in value.items()}
        else:
            flat[name] = value
    return flat


def columns_of(rows: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(name) for row in rows if isinstance(row, dict) for name in row))


def list_filled_columns(rows: Iterable[Row]) -> list[str]:
    """Columns that hold something in one of the rows."""
    return list(dict.fromkeys(str(name) for row in rows for name, value in row.items() if value not in EMPTY))
