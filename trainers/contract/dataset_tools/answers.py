"""The text of an answer in a row: a plain string, or one message of the assistant. And what becomes of the columns beside it."""

from __future__ import annotations

from typing import Any

from trainers.contract.dataset_tools.base import Row, RowDropped
from trainers.contract.spans import span_column

UNREADABLE = "answers of several messages, or with calls of tools"
MARGIN = "margin"  # by how much a pair was preferred, as people said


def read_answer_text(answer: Any) -> str:
    """Raises RowDropped for an answer that is not one text."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], dict):
        content = answer[0].get("content")
        if isinstance(content, str) and not answer[0].get("tool_calls"):
            return content
    raise RowDropped(UNREADABLE)


def replace_answer_text(answer: Any, text: str) -> Any:
    """A new answer with this text, in the shape of one that ``read_answer_text`` reads."""
    return text if isinstance(answer, str) else [{**answer[0], "content": text}]


def remove_columns(row: Row, *names: str) -> Row:
    """A row without these columns and without the spans that were marked in them."""
    gone = {*names, *map(span_column, names)}
    return {name: value for name, value in row.items() if name not in gone}


def make_pair(row: Row, side: str, text: str) -> Row:
    """A preference pair: the answer of the column ``side`` is chosen, with its marked spans, and ``text`` is rejected.

    ``margin`` goes: it was said of another pair.
    """
    answer = row[side]
    rest = remove_columns(row, "chosen", "rejected", "completion", "label", MARGIN)
    spans = row.get(span_column(side))
    marked = {span_column("chosen"): spans} if spans is not None else {}
    return {**rest, "chosen": answer, "rejected": replace_answer_text(answer, text), **marked}


def insert_into_spans(spans: list[Row], place: int, length: int) -> list[Row]:
    """Marked spans of a text into which ``length`` characters are inserted at ``place``. A span around that place is dropped: it marked another
    text.
    """
    kept = [span for span in spans if span["end"] <= place or span["start"] >= place]
    return [span if span["end"] <= place else {**span, "start": span["start"] + length, "end": span["end"] + length} for span in kept]
