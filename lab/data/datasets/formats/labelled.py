"""Rows whose answers are marked or checked: KTO, stepwise supervision, prompts with a reference, GSM8K."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lab.data.datasets.formats.base import EMPTY, ColumnMapping, ConvertedRow, Format, FormatPart, Row, Values
from lab.data.datasets.formats.chats import CONTEXT, HISTORY, make_completion_part, make_conversation_part
from lab.data.datasets.formats.messages import decode_json_cell, parse_messages, require_clean_text, require_text
from lab.data.datasets.formats.pairs import SYSTEM, TOOLS, make_prompt_part
from lab.data.datasets.formats.rows import (
    FALSE,
    TRUE,
    build_completion_row,
    normalize_value,
    parse_binary_label,
    prompt_of,
    require_question,
    with_system,
)
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError
from lab.data.datasets.stepped_rows import prompt_text

ANSWER = re.compile(r"^(?P<worked>.*)####\s*(?P<answer>[^\n]+?)\s*$", re.DOTALL)
THOUSANDS = re.compile(r"-?\$?\d{1,3}(,\d{3})+(\.\d+)?")
REFERENCE = FormatPart("reference", "the reference answer", ("reference", "ground_truth", "gold", "solution"))
DATA = FormatPart("data", "what the task's rewards need besides", ("data",), needed=False, keys=None)


def from_labelled(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    row = build_completion_row(values, parse_messages(values["completion"], "completion", "assistant"))
    return ConvertedRow(row | {"label": parse_binary_label(values["label"])})


def are_labels(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    """Whether every label that is there is a yes or a no. A rating of 1 to 5 is not."""
    given = [row[columns["label"]] for row in rows if row.get(columns["label"]) not in EMPTY]
    return bool(given) and all(isinstance(label, str | int | float) and normalize_value(label) in TRUE | FALSE for label in given)


def from_steps(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """TRL knows the prompt of stepwise rows as text only. Raises RowError."""
    steps, marks = (parse_list_cell(values[name], name) for name in ("completions", "labels"))
    if len(steps) != len(marks):
        raise RowError(f"has {len(steps)} steps and {len(marks)} labels")
    prompt = require_question(with_system(prompt_of(values) or [], values.get("system")))
    texts = [require_text(step, f"step {number}") for number, step in enumerate(steps, 1)]
    return ConvertedRow({"prompt": prompt_text(prompt), "completions": texts, "labels": [parse_binary_label(mark) for mark in marks]})


def parse_list_cell(value: Any, name: str) -> list[Any]:
    if isinstance(value, str):
        value = decode_json_cell(value)
    if not isinstance(value, list) or not value:
        raise RowError(f"{name} is no list")
    return value


def are_steps(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    cells = [decode_json_cell(own) if isinstance(own, str) else own for own in (row.get(columns["completions"]) for row in rows)]
    return any(isinstance(cell, list) and cell and isinstance(cell[0], str) for cell in cells)


def from_reference(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    prompt = require_question(with_system(prompt_of(values) or [], values.get("system")))
    data = values.get("data")
    if isinstance(data, str):
        data = decode_json_cell(data)
    if data not in EMPTY and not isinstance(data, dict):
        raise RowError("data is no object")
    return ConvertedRow({"prompt": prompt, "reference": format_reference(values["reference"])} | ({"data": data} if data else {}))


def format_reference(value: Any) -> str:
    """Numbers of tables and JSON are written as people write them."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(int(value)) if float(value).is_integer() else repr(value)
    return require_text(value, "reference")


def from_gsm8k(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """The number after #### is the reference; how it was worked out is kept beside it."""
    match = ANSWER.match(require_text(values["solution"], "answer"))
    if match is None:
        raise RowError("answer has no #### before its result")
    result = match["answer"].strip()
    result = result.replace(",", "") if THOUSANDS.fullmatch(result) else result
    prompt = require_question(with_system(prompt_of(values) or [], values.get("system")))
    worked = {"solution": require_clean_text(match["worked"].strip(), "answer")} if match["worked"].strip() else {}
    return ConvertedRow({"prompt": prompt, "reference": result, **worked})


def have_marker(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    return any("####" in str(row.get(columns["solution"])) for row in rows)


FORMATS = (
    Format(
        "stepwise",
        "Stepwise supervision",
        "Each step of completions is right or wrong, as the label at its place says.",
        Form.STEPWISE,
        (
            make_prompt_part("prompt", "question"),
            FormatPart("completions", "the steps", ("completions", "steps")),
            FormatPart("labels", "whether each step is right", ("labels",)),
            SYSTEM,
        ),
        from_steps,
        are_steps,
    ),
    Format(
        "gsm8k",
        "GSM8K",
        "Question becomes the prompt, the result after #### the reference answer; the way to it is kept as solution.",
        Form.PROMPT,
        (make_prompt_part("question"), FormatPart("solution", "the reference answer, and the way to it", ("answer",))),
        from_gsm8k,
        have_marker,
    ),
    Format(
        "kto",
        "KTO",
        "Prompt, completion, and a label that says whether the completion is good.",
        Form.KTO,
        (make_prompt_part("prompt"), make_completion_part("completion"), FormatPart("label", "good or bad", ("label",)), SYSTEM, TOOLS),
        from_labelled,
        are_labels,
    ),
    Format(
        "sharegpt-kto",
        "ShareGPT with KTO tags",
        "The last answer of the conversation is good or bad, as kto_tag says.",
        Form.KTO,
        (make_conversation_part("conversations", "messages"), FormatPart("label", "good or bad", ("kto_tag",)), SYSTEM, TOOLS),
        from_labelled,
        are_labels,
    ),
    Format(
        "alpaca-kto",
        "Alpaca with KTO tags",
        "Instruction and input are joined to the prompt; output is good or bad, as kto_tag says.",
        Form.KTO,
        (make_prompt_part("instruction"), CONTEXT, make_completion_part("output"), FormatPart("label", "good or bad", ("kto_tag",)), SYSTEM, HISTORY),
        from_labelled,
        are_labels,
    ),
    Format(
        "prompt-reference",
        "Prompts with a reference (GRPO)",
        "Answers to the prompt are sampled while training and scored against the reference.",
        Form.PROMPT,
        (make_prompt_part("prompt"), REFERENCE, DATA, SYSTEM),
        from_reference,
    ),
)
