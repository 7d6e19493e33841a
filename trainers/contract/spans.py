"""Marked spans of answers: stretches of characters that somebody called good or bad, checked before anything is trained on them.

The column ``<side>_spans`` goes with the answer in the column ``<side>`` (chosen, rejected or completion):

    "completion_spans": [{"start": 12, "end": 22, "label": "bad", "text": "7 * 8 = 54"}]

``start`` and ``end`` count characters (Unicode code points) of the contents of the answer's messages, one after the other, the end excluded. Spans of
an answer do not overlap. ``text`` is what stands there; a file may leave it out. It is kept so that spans are never taken for those of another text.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from trainers.contract.problems import shorten_value

GOOD, BAD = "good", "bad"
SIDES = ("chosen", "rejected", "completion")
KEYS = ("start", "end", "label", "text")
MOST = 10_000  # spans of one answer
METHOD = "span-credit"  # the method that trains on them

Row = dict[str, Any]
Span = dict[str, Any]


class SpanError(ValueError):
    """Why the spans of an answer cannot be used, in words for the person who made the file."""


def span_column(side: str) -> str:
    return f"{side}_spans"


def answer_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text that spans count in."""
    return "".join(message["content"] for message in messages)


def read_row_spans(raw: Mapping[str, Any], answers: Mapping[str, Any]) -> Row:
    """The span columns of a row's checked ``answers`` (lists of messages), each with its spans in order and with their texts. Raises SpanError."""
    there = [side for side in SIDES if side in answers and raw.get(span_column(side)) is not None]
    return {span_column(side): read_spans(raw[span_column(side)], answer_text(answers[side]), span_column(side)) for side in there}


def read_spans(value: Any, text: str, column: str) -> list[Span]:
    """The spans in order, each with its text. Raises SpanError."""
    if not isinstance(value, list):
        raise SpanError(f"{column} is no list of spans but {shorten_value(repr(value))}")
    if len(value) > MOST:
        raise SpanError(f"{column} has {len(value):,} spans; at most {MOST:,} of an answer are read")
    spans = sorted((read_span(given, text, f"{column}[{number}]") for number, given in enumerate(value)), key=lambda span: int(span["start"]))
    for one, other in pairwise(spans):
        if other["start"] < one["end"]:
            raise SpanError(f"{column} has spans that overlap: {one['start']} to {one['end']} and {other['start']} to {other['end']}")
    return spans


def read_span(given: Any, text: str, where: str) -> Span:
    if not isinstance(given, dict):
        raise SpanError(f"{where} is not an object with start, end and label but {shorten_value(repr(given))}")
    if other := [str(key) for key, value in given.items() if key not in KEYS and value is not None]:
        raise SpanError(f"{where} has {shorten_value(', '.join(other))}; only {', '.join(KEYS)} are understood")
    start, end = (whole_number(given.get(name), f"{where}.{name}") for name in ("start", "end"))
    if start >= end:
        raise SpanError(f"{where} ends at {end}, which is not after its start {start}")
    if end > len(text):
        raise SpanError(f"{where} ends at {end}, but the answer has {len(text):,} characters")
    if given.get("label") not in (GOOD, BAD):
        raise SpanError(f"{where}.label is {shorten_value(repr(given.get('label')))}; use {GOOD} or {BAD}")
    if given.get("text") is not None and given["text"] != text[start:end]:
        says, stands = shorten_value(repr(given["text"])), shorten_value(repr(text[start:end]))
        raise SpanError(f"{where}.text is {says}, but the answer says {stands} there: the answer was changed after it was marked")
    return {"start": start, "end": end, "label": given["label"], "text": text[start:end]}


def whole_number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SpanError(f"{where} is {shorten_value(repr(value))}; use a whole number of characters, 0 or more")
    return value


def has_spans(row: Mapping[str, Any], sides: Sequence[str] = SIDES) -> bool:
    return any(row.get(span_column(side)) for side in sides)


def swap_span_sides(row: Row) -> Row:
    """The span columns of a pair whose answers change places."""
    one, other = span_column("chosen"), span_column("rejected")
    swapped = {new: row[old] for new, old in ((one, other), (other, one)) if old in row}
    return {**{name: value for name, value in row.items() if name not in (one, other)}, **swapped}


def find_spans_of(row: Row, side: str) -> tuple[list[Span], int]:
    """The spans that were marked in the text that stands on this side now, and how many were marked in a text that is gone.

    Methods may swap the sides of a pair or rewrite an answer: spans go with the text they were marked in.
    """
    text = answer_text(row[side])
    own: list[Span] = row.get(span_column(side)) or []
    if own and fit_text(own, text):
        return own, 0
    other = {"chosen": "rejected", "rejected": "chosen"}.get(side, side)
    swapped: list[Span] = row.get(span_column(other)) or []
    # Spans that fit where they stand were marked there: an answer that begins alike does not take them.
    if swapped and fit_text(swapped, text) and not fit_text(swapped, answer_text(row[other])):
        return swapped, 0
    return [], len(own)


def fit_text(spans: Sequence[Span], text: str) -> bool:
    return all(span["text"] == text[span["start"] : span["end"]] for span in spans)
