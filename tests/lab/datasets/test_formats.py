"""Every known format: a sample of it is recognised by name and becomes exactly these rows; what is left out is named, no preference ignored."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from lab.data.datasets.formats.base import ColumnMapping
from lab.data.datasets.formats.reading import (
    BY_HAND,
    FORMATS,
    KNOWN,
    convert_row,
    form_of,
    guess_mapping,
    ignored_preference,
    left_out,
    mapped_to,
    recognise_format,
)
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError, read_raw_records
from tests.lab.datasets.samples import annotated, answers, preferences
from tests.lab.datasets.samples.base import ANSWERED, ASKED, BAD, GOOD, PAIR, Sample, asked
from trainers.data.datasets import BrokenRow, row_of

SAMPLES = (*preferences.SAMPLES, *annotated.SAMPLES, *answers.SAMPLES)
TRAINERS = {Form.PREFERENCE: "dpo", Form.KTO: "kto", Form.COMPLETION: "sft", Form.STEPWISE: "kto", Form.PROMPT: "grpo"}


def result(raw: Any, mapped: ColumnMapping) -> dict[str, Any] | str:
    try:
        return convert_row(raw, mapped).row
    except RowError as error:
        return str(error)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_is_recognised_and_becomes_these_rows(sample: Sample) -> None:
    mapped = recognise_format(sample.rows)
    assert mapped is not None
    assert mapped.format == sample.format
    for raw, expected in zip(sample.rows, sample.becomes, strict=True):
        found = result(raw, mapped)
        assert expected in found if isinstance(expected, str) else found == expected
    whole = [raw for raw, expected in zip(sample.rows, sample.becomes, strict=True) if not isinstance(expected, str)]
    assert sorted({name for raw in whole for name in left_out(raw, mapped)}) == sample.left_out
    assert convert_row(whole[0], mapped).scores == sample.scores
    assert not ignored_preference(sample.left_out, sample.rows, mapped)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_rows_of_a_sample_are_what_its_trainer_reads(sample: Sample) -> None:
    mapped = recognise_format(sample.rows)
    assert mapped is not None
    for expected in sample.becomes:
        if isinstance(expected, dict):
            assert row_of(json.loads(json.dumps(expected)), TRAINERS[form_of(mapped)])


def test_every_known_format_has_a_sample() -> None:
    assert {sample.format for sample in SAMPLES} == {one.name for one in KNOWN}


def test_a_table_of_texts_is_read_as_the_same_rows(tmp_path: Path) -> None:
    """In CSV every cell is text: lists are JSON, numbers are digits."""
    for sample in SAMPLES:
        if sample.name in ("arena-votes", "arena", "helpsteer2", "label-studio-min", "kto", "stepwise", "openai-chat", "alpaca", "gsm8k", "nectar"):
            text = io.StringIO()
            names = list(dict.fromkeys(name for row in sample.rows for name in row))
            writer = csv.DictWriter(text, names)
            writer.writeheader()
            writer.writerows({name: value if isinstance(value, str) else json.dumps(value) for name, value in row.items()} for row in sample.rows)
            (tmp_path / "table").write_text(text.getvalue(), encoding="utf-8")
            rows = [row for _, row in read_raw_records(tmp_path / "table", "csv")]
            mapped = recognise_format(rows)
            assert mapped is not None, sample.name
            assert mapped.format == sample.format
            for raw, expected in zip(rows, sample.becomes, strict=True):
                found = result(raw, mapped)
                assert expected in found if isinstance(expected, str) else found == expected, sample.name


LABELLED = {"question": "What is 2 + 2?", "answer_x": "5", "answer_y": "4", "pick": "the second"}


def test_two_answers_of_any_table_are_preferences_by_the_words_of_their_column() -> None:
    assert recognise_format([LABELLED]) is None
    columns = {"prompt": "question", "first": "answer_x", "second": "answer_y", "preference": "pick"}
    mapped = mapped_to(FORMATS["compared"], [LABELLED], columns, {"says_first": "the first", "says_second": "The second"})
    assert convert_row(LABELLED, mapped).row == PAIR
    assert convert_row({**LABELLED, "pick": "the first"}, mapped).row == {**PAIR, "chosen": BAD, "rejected": GOOD}
    assert "neither 'the first' nor 'The second'" in str(result({**LABELLED, "pick": "0"}, mapped))
    assert "is a tie" in str(result({**LABELLED, "pick": "tie"}, mapped))
    assert FORMATS["compared"].missing(mapped_to(FORMATS["compared"], [LABELLED], columns)) == ["says_first", "says_second"]


@pytest.mark.parametrize("name", ["winner", "preference", "label", "choice", "rank", "preferred", "overall_preference", "preference.responses"])
def test_a_preference_beside_mapped_answers_is_never_ignored(name: str) -> None:
    raw = {"question": "q", "answer_x": "5", "answer_y": "4", name: "x"}
    mapped = mapped_to(FORMATS["pairs"], [raw], {"prompt": "question", "chosen": "answer_x", "rejected": "answer_y"})
    assert ignored_preference(left_out(raw, mapped), [raw], mapped) == [name]


def test_a_preference_is_known_by_its_values_where_its_name_says_nothing() -> None:
    rows = [{"question": "q", "answer_x": "5", "answer_y": "4", "pw": side} for side in ("left", "right", "tie")]
    mapped = mapped_to(FORMATS["pairs"], rows, {"prompt": "question", "chosen": "answer_x", "rejected": "answer_y"})
    assert ignored_preference(["pw", "answer_x"], rows, mapped) == ["pw"]


def test_a_rating_is_no_yes_or_no() -> None:
    """1 of 5 is the worst rating, and was read as good."""
    rows = [{"prompt": "What is 2 + 2?", "completion": "4", "label": rating} for rating in (1, 3, 5)]
    found = recognise_format(rows)
    assert found is None or found.format != "kto"
    mapped = mapped_to(FORMATS["marked"], rows)
    assert FORMATS["marked"].missing(mapped) == ["good", "bad"]
    mapped = mapped_to(FORMATS["marked"], rows, None, {"good": "5", "bad": "1"})
    assert [result(row, mapped) for row in rows] == [
        {**ANSWERED, "label": False},
        "label is '3', neither '5' nor '1'",
        {**ANSWERED, "label": True},
    ]


@pytest.mark.parametrize(
    ("raw", "name", "expected"),
    [
        ({"question": "What is 2 + 2?", "response_w": "4", "response_l": "5"}, "pairs", PAIR),
        ({"query": "What is 2 + 2?", "candidates": [{"text": "5", "score": 1}, {"text": "4", "score": 2}]}, "answers", PAIR),
        ({"question": "What is 2 + 2?", "answer": "4"}, "completions", ANSWERED),
        ({"query": "What is 2 + 2?", "output": "4", "desirable": "yes"}, "marked", {**ANSWERED, "label": True}),
        ({"problem": "What is 2 + 2?", "ground_truth": "4"}, "references", {"prompt": ASKED, "reference": "4"}),
        ({"problem": "What is", "context": "2 + 2?", "target": "4"}, "completions", {"prompt": asked("What is\n\n2 + 2?"), "completion": GOOD}),
    ],
)
def test_other_tables_start_from_a_guess_by_names(raw: dict[str, Any], name: str, expected: dict[str, Any]) -> None:
    mapped = guess_mapping([raw])
    assert (mapped.format, result(raw, mapped)) == (name, expected)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"prompt": "a", "chosen": "x", "rejected": "x"}, "the same"),
        ({"prompt": "a", "chosen": "x"}, "rejected is missing"),
        ({"prompt": " ", "chosen": "x", "rejected": "y"}, "share|no prompt"),
        ({"prompt": "a", "chosen": 3, "rejected": "y"}, "neither text nor a list"),
        ({"prompt": "a", "chosen": "x\0", "rejected": "y"}, "NUL"),
        ({"prompt": "a", "chosen": "\ud800", "rejected": "y"}, "surrogate"),
        ({"prompt": "a", "chosen": [{"role": "boss", "content": "x"}], "rejected": "y"}, "role 'boss'"),
        ({"prompt": "a", "chosen": [{"role": "user", "content": "b"}, *GOOD], "rejected": "y"}, "message of user"),
        ({"prompt": "a", "chosen": [{"role": "user", "content": "x", "tool_calls": [{"name": "f"}]}], "rejected": "y"}, "only the assistant"),
        ({"prompt": ASKED, "system": "A", "chosen": "x", "rejected": "y"}, ""),
        ({"prompt": [{"role": "system", "content": "B"}, *ASKED], "system": "A", "chosen": "x", "rejected": "y"}, "something else"),
        ([1, 2], "no object"),
        (None, "no object"),
    ],
)
def test_rows_that_cannot_be_used_say_why(raw: Any, reason: str) -> None:
    mapped = ColumnMapping("pairs", {name: name for name in ("prompt", "chosen", "rejected", "system")})
    if not reason:
        assert convert_row(raw, mapped).row["prompt"][0]["content"] == "A"
        return
    with pytest.raises(RowError, match=reason):
        convert_row(raw, mapped)


@pytest.mark.parametrize("one", BY_HAND, ids=lambda one: one.name)
def test_hostile_values_break_the_row_and_nothing_else(one: Any) -> None:
    for value in ({}, [], [[]], [None], {"role": 1}, [{"role": "user"}], 3.5, True, "[", "{", '[{"a": 1}]', [{"role": "assistant", "tool_calls": 3}]):
        mapped = ColumnMapping(one.name, {part.name: part.name for part in one.parts}, {name: "a" for name, _ in one.settings})
        raw = {part.name: value for part in one.parts}
        found = result(raw, mapped)
        assert isinstance(found, str | dict)
        assert isinstance(left_out(raw, mapped), list)
        assert recognise_format([raw]) is None or isinstance(recognise_format([raw]), ColumnMapping)


def test_calls_of_tools_reach_the_trainer_as_objects() -> None:
    row = row_of({"prompt": ASKED, "completion": [answers.CALLING], "tools": json.dumps(answers.TOOLS)}, "sft")
    assert row["completion"][0]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 2, "b": 2}}
    assert row["tools"] == answers.TOOLS
    with pytest.raises(BrokenRow, match="grpo cannot pass on"):
        row_of({"prompt": [*ASKED, answers.CALLING, answers.RESULT], "reference": "4"}, "grpo")
