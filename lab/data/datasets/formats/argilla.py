"""Argilla's records and datasets: answers in fields, and what people said of them in responses to a ranking or label question.

Three ways of writing the same: records (``fields`` and ``responses`` as objects), datasets of version 2 (``<question>.responses`` with
``.users`` and ``.status``), datasets of version 1 (a column of the question with a list of ``user_id``, ``value`` and ``status``).
A suggestion is a model's and decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.data.datasets.formats.base import EMPTY, Converted, Format, Mapped, Part, Row, Values, expand_nested_columns, list_filled_columns
from lab.data.datasets.formats.compared import TIES
from lab.data.datasets.formats.messages import parse_messages
from lab.data.datasets.formats.pairs import make_prompt_part
from lab.data.datasets.formats.rows import best_and_worst, build_preference_row, parse_number
from lab.data.datasets.models import Form
from lab.data.datasets.raw import Broken

FIELDS = "fields."
PROMPTS = ("prompt", "instruction", "question", "query", "input", "context", "conversation")
Ranking = Mapping[str, float]  # name of a field -> its place, 1 is the best


def from_responses(values: Values, mapped: Mapped, raw: Row) -> Converted:
    """The field with the best place on average against the one with the worst. Raises Broken where nobody answered, or where these are equal."""
    rankings = [parse_ranking(value, mapped.columns) for value in collect_submitted_values(raw, mapped.columns["preference"])]
    if not rankings:
        raise Broken("nobody has answered: there is no submitted response")
    places: defaultdict[str, list[float]] = defaultdict(list)
    for one in rankings:
        for name, place in one.items():
            places[name].append(place)
    if len(places) < 2:
        raise Broken("fewer than two answers are ranked")
    if any(len(own) < len(rankings) for own in places.values()):
        raise Broken("the responses do not rank the same answers")
    best, worst, _, _ = best_and_worst([(-sum(own) / len(own), name) for name, own in places.items()], "mean place")
    sides = [parse_messages(read_record_field(raw, name), name, "assistant") for name in (best, worst)]
    return Converted(build_preference_row(values, *sides))


def read_record_field(row: Row, name: str) -> Any:
    found = next((row[one] for one in (f"{FIELDS}{name}", name) if row.get(one) not in EMPTY), None)
    if found is None:
        raise Broken(f"a response ranks {name[:40]!r}, which is no field of the record")
    return found


def collect_submitted_values(row: Row, column: str) -> list[Any]:
    """The values of the responses that count: all that are not drafts or discarded."""
    found = row.get(column)
    if not isinstance(found, list):
        return []
    if found and all(isinstance(one, dict) and "value" in one and "rank" not in one for one in found):
        return [one["value"] for one in found if one["value"] not in EMPTY and one.get("status") in (None, "submitted")]
    states = row.get(f"{column}.status")
    states = states if isinstance(states, list) and len(states) == len(found) else [None] * len(found)
    return [value for value, state in zip(found, states, strict=True) if value not in EMPTY and state in (None, "submitted")]


def parse_ranking(value: Any, columns: Mapping[str, str]) -> Ranking:
    """Names best first, names with ranks, ranks and names as two lists, or the name of the better of two answers. Raises Broken."""
    if isinstance(value, str):
        return parse_label_ranking(value, columns)
    if isinstance(value, dict) and isinstance(value.get("rank"), list) and isinstance(value.get("value"), list):
        value = [{"rank": rank, "value": name} for rank, name in zip(value["rank"], value["value"], strict=False)]
    if not isinstance(value, list) or not value:
        raise Broken("a response is no ranking of answers")
    if all(isinstance(one, str) for one in value):
        return {name: float(place) for place, name in enumerate(value, 1)}
    found: dict[str, float] = {}
    for one in value:
        place = parse_number(one.get("rank")) if isinstance(one, dict) else None
        if place is None or not isinstance(one.get("value"), str):
            raise Broken("a response ranks an answer without a name or without a place")
        found[one["value"]] = place
    return found


def parse_label_ranking(value: str, columns: Mapping[str, str]) -> Ranking:
    """A label question names the better of two answers, or says that neither is. Raises Broken."""
    names = [columns[part].removeprefix(FIELDS) for part in ("first", "second") if part in columns]
    if len(names) == 2 and normalize_field_name(value) in map(normalize_field_name, names):
        return {name: 1.0 if normalize_field_name(name) == normalize_field_name(value) else 2.0 for name in names}
    if len(names) == 2 and value.strip().lower() in TIES:
        return dict.fromkeys(names, 1.5)
    raise Broken(f"a response is {value[:40]!r}, which names no answer of the record")


def normalize_field_name(name: str) -> str:
    """Labels are written by people: "Response 1" is the field response-1."""
    return "".join(char for char in name.lower() if char.isalnum())


def question_of(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, str]:
    """The only column whose responses name answers, and of a label question the two that it names. None where several could be it."""
    there = [name for name in list_filled_columns(rows) if not name.endswith((".users", ".status"))]
    found = [own for name in there if (own := find_question_columns(rows, name, there))]
    return found[0] if len(found) == 1 else {}


def find_question_columns(rows: Sequence[Row], column: str, there: Sequence[str]) -> dict[str, str]:
    said = [(row, value) for row in rows for value in collect_submitted_values(row, column)]
    words = {value for _, value in said if isinstance(value, str)}
    columns = {"preference": column}
    if words:
        named = {
            normalize_field_name(word): name
            for word in words - set(TIES)
            for name in there
            if normalize_field_name(name.removeprefix(FIELDS)) == normalize_field_name(word)
        }
        columns |= dict(zip(("first", "second"), sorted(named.values()), strict=False))
    try:
        fits = all(read_record_field(row, name) is not None for row, value in said for name in parse_ranking(value, columns))
    except Broken:
        return {}
    return columns if said and fits else {}


def read_by(row: Row, mapped: Mapped) -> Iterable[str]:
    """The fields that the responses rank, and the state of these."""
    column = mapped.columns.get("preference", "")
    found = {f"{column}.status"}
    for value in collect_submitted_values(row, column):
        try:
            found |= {one for name in parse_ranking(value, mapped.columns) for one in (f"{FIELDS}{name}", name)}
        except Broken:
            continue
    return found


FORMATS = (
    Format(
        "argilla",
        "Argilla ranking",
        "The answer that the submitted responses rank best is chosen, the one they rank worst rejected.",
        Form.PREFERENCE,
        (
            make_prompt_part(*(name for one in PROMPTS for name in (f"{FIELDS}{one}", one))),
            Part("preference", "says which answer is better", (), keys=frozenset(("value", "rank", "status"))),
            Part("first", "an answer that the labels name", (), needed=False),
            Part("second", "an answer that the labels name", (), needed=False),
        ),
        from_responses,
        flat=expand_nested_columns,
        find=question_of,
        reads=read_by,
        chooses=True,
    ),
)
