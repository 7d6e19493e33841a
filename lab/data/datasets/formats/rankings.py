"""Rows that list several answers to a prompt with ratings or ranks: UltraFeedback as published, Nectar. The best is paired with the worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.data.datasets.formats.base import ColumnMapping, ConvertedRow, Format, FormatPart, Row, Values
from lab.data.datasets.formats.messages import parse_json_messages, parse_messages
from lab.data.datasets.formats.pairs import SYSTEM, make_prompt_part
from lab.data.datasets.formats.rows import best_and_worst, build_preference_row, parse_number
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError

TEXTS = ("response", "answer", "completion", "content", "text", "output")
RATINGS = ("overall_score", "score", "rating", "fine-grained_score", "average_rating")
KEYS = frozenset((*TEXTS, *RATINGS, "rank", "annotations"))


def answers_part(*names: str) -> FormatPart:
    return FormatPart("answers", "the answers: the best and the worst of them", names, keys=KEYS)


def from_ranked(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """By rank where the answers have one (1 is the best), else by rating. Raises RowError."""
    answers = parse_json_messages(values["answers"])
    if not isinstance(answers, list) or len(answers) < 2:
        raise RowError("has fewer than two answers")
    ranks = [(-rank, answer) for answer in answers if isinstance(answer, dict) and (rank := parse_number(answer.get("rank"))) is not None]
    ratings = [(score, answer) for answer in answers if (score := read_answer_rating(answer)) is not None]
    best, worst, high, low = best_and_worst(ranks or ratings, "rank" if ranks else "rating")
    sides = [parse_messages(find_answer_text(answer), "answer", "assistant") for answer in (best, worst)]
    return ConvertedRow(build_preference_row(values, *sides), {} if ranks else {"chosen": high, "rejected": low})


def find_answer_text(answer: Mapping[str, Any]) -> Any:
    return next((answer[name] for name in TEXTS if answer.get(name) is not None), None)


def read_answer_rating(answer: Any) -> float | None:
    """The score of one answer, else the mean of its annotations' ratings."""
    if not isinstance(answer, dict):
        return None
    for name in RATINGS:
        if (value := parse_number(answer.get(name))) is not None:
            return value
    aspects = answer.get("annotations")
    inner = (
        [parse_number(own.get("Rating", own.get("rating"))) for own in aspects.values() if isinstance(own, dict)] if isinstance(aspects, dict) else []
    )
    known = [value for value in inner if value is not None]
    return sum(known) / len(known) if known else None


def lists_of(rows: Sequence[Row], columns: Mapping[str, str]) -> list[Mapping[str, Any]]:
    lists = [parse_json_messages(row.get(columns["answers"])) for row in rows]
    return [answer for answers in lists if isinstance(answers, list) for answer in answers if isinstance(answer, dict)]


def have_ranks(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    return any(answer.get("rank") is not None and find_answer_text(answer) is not None for answer in lists_of(rows, columns))


def have_ratings(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    return any(read_answer_rating(answer) is not None and find_answer_text(answer) is not None for answer in lists_of(rows, columns))


FORMATS = (
    Format(
        "nectar",
        "Ranked answers (Nectar)",
        "Of the answers to a prompt the one with the best rank is chosen, the one with the worst rejected.",
        Form.PREFERENCE,
        (make_prompt_part("prompt", "instruction", "question"), answers_part("answers", "completions", "responses"), SYSTEM),
        from_ranked,
        have_ranks,
    ),
    Format(
        "ultrafeedback",
        "UltraFeedback (rated answers)",
        "Of the answers to a prompt the one with the best rating is chosen, the one with the worst rejected.",
        Form.PREFERENCE,
        (make_prompt_part("instruction", "prompt", "question"), answers_part("completions", "answers", "responses"), SYSTEM),
        from_ranked,
        have_ratings,
    ),
)
