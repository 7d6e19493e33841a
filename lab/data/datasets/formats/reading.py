"""Which format a file has, what becomes of its columns, and its rows. What nothing is made of is named, and a preference is never ignored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.data.datasets.formats import argilla, by_hand, chats, compared, label_studio, labelled, pairs, rankings
from lab.data.datasets.formats.base import EMPTY, ColumnMapping, ConvertedRow, Format, FormatPart, Row, columns_of, list_filled_columns
from lab.data.datasets.formats.compared import FIRST, SECOND, TIES
from lab.data.datasets.formats.messages import parse_json_messages
from lab.data.datasets.formats.rows import normalize_value
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError
from lab.lib.registry import Registry

# In the order they are tried: the more columns a format names, the earlier.
FORMATS: Registry[Format] = Registry.of(
    "format",
    (
        *label_studio.FORMATS,
        *argilla.FORMATS,
        *compared.FORMATS,
        *pairs.FORMATS,
        *rankings.FORMATS,
        *labelled.FORMATS,
        *chats.FORMATS,
        *by_hand.FORMATS,
    ),
)
KNOWN = tuple(known for known in FORMATS.values() if not known.by_hand)
BY_HAND = tuple(known for known in FORMATS.values() if known.by_hand)
RECORDS = re.compile(
    r"(.*\.)?(winner(_.*)?|preference|overall_preference|preference_(strength|score|label)|human_preference|preferred|better|best|choices?|labels?|verdict"
    r"|votes?|judge?ments?|rank(s|ing|ings)?|selected|pairwise|comparison|annotations|responses?\.responses)|.*\.responses",
    re.IGNORECASE,
)


def select_object_rows(rows: Iterable[Any]) -> list[Row]:
    return [row for row in rows if isinstance(row, dict)]


def recognise_format(rows: Sequence[Any]) -> ColumnMapping | None:
    """The known format of the first rows of a file: of those that fit the one that leaves out the fewest columns. None where none fits."""
    fitting = []
    for known in KNOWN:
        mapped, flat = mapped_to(known, rows), flatten_rows(known, rows)
        if flat and not known.missing(mapped) and known.fits(flat, mapped.columns):
            fitting.append(mapped)
    return min(fitting, key=lambda mapped: count_unread_columns(rows, mapped)) if fitting else None


def guess_mapping(rows: Sequence[Any]) -> ColumnMapping:
    """A mapping by hand to start from: of those that find all their columns the one that leaves out the fewest, else the one that finds most."""
    mappings = [(known, mapped_to(known, rows)) for known in BY_HAND]
    whole = [mapped for known, mapped in mappings if not known.missing(mapped) and known.fits(flatten_rows(known, rows), mapped.columns)]
    if whole:
        return min(whole, key=lambda mapped: count_unread_columns(rows, mapped))
    return max(mappings, key=lambda pair: len(pair[1].columns) - len(pair[0].missing(pair[1])))[1]


def count_unread_columns(rows: Iterable[Any], mapped: ColumnMapping) -> int:
    """How many columns are left out."""
    return len({name for row in select_object_rows(rows) for name in left_out(row, mapped)})


def flatten_rows(form: Format, rows: Iterable[Any]) -> list[Row]:
    return [form.flat(row) for row in select_object_rows(rows)]


def mapped_to(form: Format, rows: Sequence[Any], chosen: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None) -> ColumnMapping:
    """The format with its columns: those that were chosen, of the other parts those that go by a known name. No column is two parts."""
    flat = flatten_rows(form, rows)
    filled, chosen = list_filled_columns(flat), chosen or {}
    columns = {part: name for part, name in chosen.items() if name in columns_of(flat)}
    taken = set(columns.values())
    for part in form.parts:
        name = "" if part.name in chosen else next((known for known in match_part_columns(part, filled) if known not in taken), "")
        if name:
            columns[part.name] = name
            taken.add(name)
    matches = form.find(flat, columns)
    columns |= {part: name for part, name in matches.items() if part not in chosen and part not in columns and name not in taken}
    guessed, settings = form.prefill(flat, columns) if form.settings else {}, settings or {}
    return ColumnMapping(form.name, columns, {name: settings.get(name) or guessed.get(name, "") for name, _ in form.settings})


def match_part_columns(part: FormatPart, filled: Sequence[str]) -> list[str]:
    lower = {name.lower(): name for name in reversed(filled)}
    return [lower[name] for name in part.names if name in lower]


def form_of(mapped: ColumnMapping) -> Form:
    return FORMATS[mapped.format].form


def convert_row(raw: Any, mapped: ColumnMapping) -> ConvertedRow:
    """Raises RowError."""
    if isinstance(raw, RowError):
        raise raw
    if not isinstance(raw, dict):
        raise RowError("is no object with named columns")
    form = FORMATS[mapped.format]
    flat = form.flat(raw)
    values = {part.name: flat.get(mapped.columns.get(part.name, "")) for part in form.parts}
    for part in form.parts:
        if values[part.name] is None and part.needed:
            raise RowError(f"{mapped.columns.get(part.name) or part.name} is missing")
    return form.convert(values, mapped, flat)


def left_out(raw: Any, mapped: ColumnMapping) -> list[str]:
    """Columns of the row, and keys of objects in them, that hold something of which nothing is made."""
    if not isinstance(raw, dict):
        return []
    form = FORMATS[mapped.format]
    flat = form.flat(raw)
    read = {*mapped.columns.values(), *form.reads(flat, mapped)}
    columns = [name for name, value in flat.items() if value not in EMPTY and name not in read]
    for part in form.parts:
        column = mapped.columns.get(part.name, "")
        columns += [f"{column}[].{key}" for key in list_nested_keys(flat.get(column)) if part.keys is not None and key not in part.keys]
    return columns


def list_nested_keys(value: Any) -> list[str]:
    value = parse_json_messages(value)
    objects = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(str(key) for entry in objects if isinstance(entry, dict) for key, own in entry.items() if own not in EMPTY))


def ignored_preference(names: Iterable[str], rows: Sequence[Any], mapped: ColumnMapping) -> list[str]:
    """Of the columns left out those that record which answer is better, where none such is used and the rows become preferences."""
    form = FORMATS[mapped.format]
    if form.form != Form.PREFERENCE or "preference" in mapped.columns or "first_wins" in mapped.columns or "answers" in mapped.columns:
        return []
    flat = flatten_rows(form, rows)
    return [name for name in names if RECORDS.fullmatch(name) or tells_sides(name, flat)]


def tells_sides(column: str, rows: Sequence[Row]) -> bool:
    """Whether the column says A or B, left or right, first or second, and nothing else."""
    values = {normalize_value(row[column]) for row in rows if isinstance(row.get(column), str) and row[column].strip()}
    return bool(values) and values <= {*FIRST, *SECOND, *TIES}
