"""Argilla's records and datasets: answers in fields, and what people said of them in responses to a ranking or label question.

Three ways of writing the same: records (``fields`` and ``responses`` as objects), datasets of version 2 (``<question>.responses`` with
``.users`` and ``.status``), datasets of version 1 (a column of the question with a list of ``user_id``, ``value`` and ``status``).
A suggestion is a model's and decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.data.datasets.formats.base import (
    EMPTY,
    ColumnMapping,
    ConvertedRow,
    Format,
    FormatPart,
    Row,
    Values,
    expand_nested_columns,
    list_filled_columns,
)
from lab.data.datasets.formats.compared import TIES
from lab.data.datasets.formats.messages import parse_messages
from lab.data.datasets.formats.pairs import make_prompt_part
from lab.data.datasets.formats.rows import best_and_worst, build_preference_row, parse_number
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError

FIELDS = "fields."
PROMPTS = ("prompt", "instruction", "question", "query", "input", "context", "conversation")
Ranking = Mapping[str, float]  # name of a field -> its place, 1 is the best


def from_responses(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """The field with the best place on average against the one with the worst. Raises RowError where nobody answered, or where these are equal."""
    rankings = [parse_ranking(value, mapped.columns) for value in collect_submitted_values(raw, mapped.columns["preference"])]
    if not rankings:
        raise RowError("nobody has answered: there is no submitted response")
    places: defaultdict[str, list[float]] = defaultdict(list)
    for ranking in rankings:
        for name, rank in ranking.items():
            places[name].append(rank)
    if len(places) < 2:
        raise RowError("fewer than two answers are ranked")
    if any(len(own) < len(rankings) for own in places.values()):
        raise RowError("the responses do not rank the same answers")
    best, worst, _, _ = best_and_worst([(-sum(own) / len(own), name) for name, own in places.items()], "mean place")
    sides = [parse_messages(read_record_field(raw, name), name, "assistant") for name in (best, worst)]
    return ConvertedRow(build_preference_row(values, *sides))


def read_record_field(row: Row, name: str) -> Any:
    value = next((row[key] for key in (f"{FIELDS}{name}", name) if row.get(key) not in EMPTY), None)
    if value is None:
        raise RowError(f"a response ranks {name[:40]!r}, which is no field of the record")
    return value


def collect_submitted_values(row: Row, column: str) -> list[Any]:
    """The values of the responses that count: all that are not drafts or discarded."""
    entries = row.get(column)
    if not isinstance(entries, list):
        return []
    if entries and all(isinstance(entry, dict) and "value" in entry and "rank" not in entry for entry in entries):
        return [entry["value"] for entry in entries if entry["value"] not in EMPTY and entry.get("status") in (None, "submitted")]
    states = row.get(f"{column}.status")
    states = states if isinstance(states, list) and len(states) == len(entries) else [None] * len(entries)
    return [value for value, state in zip(entries, states, strict=True) if value not in EMPTY and state in (None, "submitted")]


def parse_ranking(value: Any, columns: Mapping[str, str]) -> Ranking:
    """Names best first, names with ranks, ranks and names as two lists, or the name of the better of two answers. Raises RowError."""
    if isinstance(value, str):
        return parse_label_ranking(value, columns)
    if isinstance(value, dict) and isinstance(value.get("rank"), list) and isinstance(value.get("value"), list):
        value = [{"rank": rank, "value": name} for rank, name in zip(value["rank"], value["value"], strict=False)]
    if not isinstance(value, list) or not value:
        raise RowError("a response is no ranking of answers")
    if all(isinstance(entry, str) for entry in value):
        return {name: float(rank) for rank, name in enumerate(value, 1)}
    ranking: dict[str, float] = {}
    for entry in value:
        position = parse_number(entry.get("rank")) if isinstance(entry, dict) else None
        if position is None or not isinstance(entry.get("value"), str):
            raise RowError("a response ranks an answer without a name or without a place")
        ranking[entry["value"]] = position
    return ranking


def parse_label_ranking(value: str, columns: Mapping[str, str]) -> Ranking:
    """A label question names the better of two answers, or says that neither is. Raises RowError."""
    names = [columns[part].removeprefix(FIELDS) for part in ("first", "second") if part in columns]
    if len(names) == 2 and normalize_field_name(value) in map(normalize_field_name, names):
        return {name: 1.0 if normalize_field_name(name) == normalize_field_name(value) else 2.0 for name in names}
    if len(names) == 2 and value.strip().lower() in TIES:
        return dict.fromkeys(names, 1.5)
    raise RowError(f"a response is {value[:40]!r}, which names no answer of the record")


def normalize_field_name(name: str) -> str:
    """Labels are written by people: "Response 1" is the field response-1."""
    return "".join(char for char in name.lower() if char.isalnum())


def question_of(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, str]:
    """The only column whose responses name answers, and of a label question the two that it names. None where several could be it."""
    columns_filled = [name for name in list_filled_columns(rows) if not name.endswith((".users", ".status"))]
    matches = [own for name in columns_filled if (own := find_question_columns(rows, name, columns_filled))]
    return matches[0] if len(matches) == 1 else {}


def find_question_columns(rows: Sequence[Row], column: str, filled: Sequence[str]) -> dict[str, str]:
    answers = [(row, value) for row in rows for value in collect_submitted_values(row, column)]
    words = {value for _, value in answers if isinstance(value, str)}
    columns = {"preference": column}
    if words:
        named = {
            normalize_field_name(word): name
            for word in words - set(TIES)
            for name in filled
            if normalize_field_name(name.removeprefix(FIELDS)) == normalize_field_name(word)
        }
        columns |= dict(zip(("first", "second"), sorted(named.values()), strict=False))
    try:
        fits = all(read_record_field(row, name) is not None for row, value in answers for name in parse_ranking(value, columns))
    except RowError:
        return {}
    return columns if answers and fits else {}


def read_by(row: Row, mapped: ColumnMapping) -> Iterable[str]:
    """The fields that the responses rank, and the state of these."""
    column = mapped.columns.get("preference", "")
    columns_read = {f"{column}.status"}
    for value in collect_submitted_values(row, column):
        try:
            columns_read |= {field for name in parse_ranking(value, mapped.columns) for field in (f"{FIELDS}{name}", name)}
        except RowError:
            continue
    return columns_read


FORMATS = (
    Format(
        "argilla",
        "Argilla ranking",
        "The answer that the submitted responses rank best is chosen, the one they rank worst rejected.",
        Form.PREFERENCE,
        (
            make_prompt_part(*(name for field in PROMPTS for name in (f"{FIELDS}{field}", field))),
            FormatPart("preference", "says which answer is better", (), keys=frozenset(("value", "rank", "status"))),
            FormatPart("first", "an answer that the labels name", (), needed=False),
            FormatPart("second", "an answer that the labels name", (), needed=False),
        ),
        from_responses,
        flat=expand_nested_columns,
        find=question_of,
        reads=read_by,
        chooses=True,
    ),
)
