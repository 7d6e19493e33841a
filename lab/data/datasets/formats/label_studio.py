"""Label Studio's exports of pairwise projects: JSON with every annotation (full), and one row an annotation (min).

In both the tag Pairwise says left or right; which column stood left is in the labelling interface, and of the full export in ``to_name``.
"""

from __future__ import annotations

import re
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
from lab.data.datasets.formats.compared import make_preferred_pair, sides_of
from lab.data.datasets.formats.messages import parse_json_messages
from lab.data.datasets.formats.pairs import make_prompt_part
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError

SIDES = {"left": True, "right": False}
ENDS = (("1", "2"), ("a", "b"), ("left", "right"), ("first", "second"))
PROMPTS = ("prompt", "question", "instruction", "query", "input", "problem", "context")
PARTS = (
    make_prompt_part(*(name for field in PROMPTS for name in (f"data.{field}", field)), needed=False),
    FormatPart("first", "the answer that stood left", ()),
    FormatPart("second", "the answer that stood right", ()),
)


def list_pairwise_results(annotation: Any) -> list[Mapping[str, Any]]:
    """The pairwise results of one annotation; none of one that was skipped."""
    if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
        return []
    results = annotation.get("result")
    return [result for result in results if isinstance(result, dict) and result.get("type") == "pairwise"] if isinstance(results, list) else []


def annotations_of(row: Row, column: str) -> list[Any]:
    annotations = parse_json_messages(row.get(column))
    return annotations if isinstance(annotations, list) else []


def from_full(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """What most annotators chose. Raises RowError when nobody did, or as many the one as the other."""
    selections = [
        parse_selected_side(result.get("value")) for own in annotations_of(raw, mapped.columns["preference"]) for result in list_pairwise_results(own)
    ]
    if not selections:
        raise RowError("nobody has compared the answers")
    if selections.count(True) == selections.count(False):
        raise RowError(f"is a tie: {selections.count(True)} chose the left answer, {selections.count(False)} the right one")
    return make_preferred_pair(values, *sides_of(values, mapped), selections.count(True) > selections.count(False))


def parse_selected_side(value: Any) -> bool:
    selected = str(value.get("selected") if isinstance(value, dict) else value).strip().lower()
    if selected not in SIDES:
        raise RowError(f"an annotation says {selected[:40]!r}, neither left nor right")
    return SIDES[selected]


def are_compared(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    return any(list_pairwise_results(own) for row in rows for own in annotations_of(row, columns["preference"]))


def sides_in_full(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, str]:
    """By the names in ``to_name`` where they are columns, else by names that end alike (answer1, answer2)."""
    data_columns = [name for name in list_filled_columns(rows) if name.startswith("data.")]
    for row in rows:
        for own in annotations_of(row, "annotations"):
            for result in list_pairwise_results(own):
                names = [f"data.{name.strip()}" for name in str(result.get("to_name")).split(",")]
                if len(names) == 2 and set(names) <= set(data_columns):
                    return {"first": names[0], "second": names[1]}
    return find_paired_columns(data_columns)


def find_paired_columns(names: Iterable[str]) -> dict[str, str]:
    """The only two columns that differ in their end alone; none where there are several such pairs."""
    lower = {name.lower(): name for name in names}
    pairs = []
    for first, other in ENDS:
        for name in lower:
            stem = re.fullmatch(rf"(.*?[^a-z]?){first}", name)
            if stem and (partner := f"{stem[1]}{other}") in lower and (first.isdigit() or not stem[1] or not stem[1][-1].isalpha()):
                pairs.append({"first": lower[name], "second": lower[partner]})
    return pairs[0] if len(pairs) == 1 else {}


def from_min(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    return make_preferred_pair(values, *sides_of(values, mapped), parse_single_selection(values["preference"]))


def parse_single_selection(value: Any) -> bool:
    value = parse_json_messages(value)
    selection = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(selection, list):
        raise RowError("says of several comparisons which answer is better; export one at a time")
    return parse_selected_side(selection)


def is_selection(value: Any) -> bool:
    selections = parse_json_messages(value)
    return isinstance(selections, list) and all(isinstance(selection, dict) and "selected" in selection for selection in selections)


def columns_of_min(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, str]:
    filled = list_filled_columns(rows)
    if not {"annotation_id", "annotator", "lead_time"} & set(filled):
        return {}
    chosen = [name for name in filled if any(row.get(name) not in EMPTY for row in rows) and all(may_hold_selection(row, name) for row in rows)]
    return {**find_paired_columns(filled), **({"preference": chosen[0]} if len(chosen) == 1 else {})}


def may_hold_selection(row: Row, name: str) -> bool:
    return row.get(name) in EMPTY or is_selection(row[name])


FORMATS = (
    Format(
        "label-studio",
        "Label Studio pairwise (JSON)",
        "The answer that most annotators selected is chosen, the other rejected.",
        Form.PREFERENCE,
        (*PARTS, FormatPart("preference", "says which answer is better", ("annotations",), keys=frozenset(("result", "was_cancelled")))),
        from_full,
        are_compared,
        expand_nested_columns,
        sides_in_full,
        chooses=True,
    ),
    Format(
        "label-studio-min",
        "Label Studio pairwise (JSON-MIN, CSV)",
        "The answer that the annotator selected is chosen, the other rejected.",
        Form.PREFERENCE,
        (*PARTS, FormatPart("preference", "says which answer is better", (), keys=frozenset(("selected",)))),
        from_min,
        find=columns_of_min,
        chooses=True,
    ),
)
