"""Rows with two answers and a column that says which is better: Chatbot Arena, HelpSteer, and any other table of that kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from lab.data.datasets.formats.base import EMPTY, ColumnMapping, ConvertedRow, Format, FormatPart, Row, Values
from lab.data.datasets.formats.messages import Message, parse_messages, require_text
from lab.data.datasets.formats.pairs import SYSTEM, TOOLS, make_prompt_part
from lab.data.datasets.formats.rows import build_preference_row, normalize_value, parse_number
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError

FIRST = ("a", "model_a", "left", "response_a", "answer_a", "response_1", "response1", "answer_1", "answer1", "first", "model_1")
SECOND = ("b", "model_b", "right", "response_b", "answer_b", "response_2", "response2", "answer_2", "answer2", "second", "model_2")
TIES = ("tie", "draw", "both", "neither", "equal", "same", "none", "tie (bothbad)", "both_bad", "bothbad", "tie (both bad)", "both_good")
SAYS = (("says_first", "Value that prefers the first answer"), ("says_second", "Value that prefers the second answer"))


def make_first_part(*names: str) -> FormatPart:
    return FormatPart("first", "one of the two answers", names)


def make_second_part(*names: str) -> FormatPart:
    return FormatPart("second", "the other answer", names)


def make_preference_part(*names: str) -> FormatPart:
    return FormatPart("preference", "says which answer is better", names)


def make_preferred_pair(values: Values, first: list[Message], second: list[Message], prefers_first: bool, **scores: float) -> ConvertedRow:
    return ConvertedRow(build_preference_row(values, *((first, second) if prefers_first else (second, first))), scores)


def sides_of(values: Values, mapped: ColumnMapping) -> tuple[list[Message], list[Message]]:
    answers = [parse_messages(values[name], mapped.columns[name], "assistant") for name in ("first", "second")]
    return answers[0], answers[1]


def from_words(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """Raises RowError for ties, and for values that were not named."""
    return make_preferred_pair(values, *sides_of(values, mapped), says_first(values["preference"], mapped))


def says_first(value: Any, mapped: ColumnMapping) -> bool:
    preference, column = normalize_value(value), mapped.columns["preference"]
    if preference == normalize_value(mapped.settings.get("says_first")):
        return True
    if preference == normalize_value(mapped.settings.get("says_second")):
        return False
    if preference in TIES:
        raise RowError(f"is a tie: {column} is {preference!r}")
    raise RowError(f"{column} is {str(value)[:40]!r}, neither {mapped.settings.get('says_first')!r} nor {mapped.settings.get('says_second')!r}")


def words_for(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, str]:
    """The values that prefer the first and the second answer, where they are words that say so."""
    values = {
        normalize_value(row[columns["preference"]]): row[columns["preference"]] for row in rows if row.get(columns.get("preference", "")) not in EMPTY
    }
    if not values or not values.keys() <= {*FIRST, *SECOND, *TIES}:
        return {}
    pairs = [pair for pair in zip(FIRST, SECOND, strict=True) if values.keys() & set(pair)]
    return {"says_first": pairs[0][0], "says_second": pairs[0][1]} if len(pairs) == 1 else {}


def known_words(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    return bool(words_for(rows, columns))


# Chatbot Arena


def from_votes(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """The competition's table: three columns of which one is 1, and every text a list of turns. Raises RowError."""
    votes = [parse_number(values[name]) for name in ("first_wins", "second_wins", "tie")]
    if sorted(vote if vote is not None else -1 for vote in votes) != [0, 0, 1]:
        raise RowError("the winner columns are not one 1 and two 0")
    if votes[2]:
        raise RowError("is a tie: winner_tie is 1")
    questions, first, other = (turns_of(values[name], name) for name in ("prompt", "first", "second"))
    return make_preferred_pair({**values, "prompt": None}, interleave_turns(questions, first), interleave_turns(questions, other), bool(votes[0]))


def turns_of(value: Any, name: str) -> list[str]:
    """The turns of one speaker: JSON in a cell, a list, or one text."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    turns = value if isinstance(value, list) else [value]
    return [require_text(turn, name) for turn in turns] if turns else [require_text("", name)]


def interleave_turns(questions: list[str], replies: list[str]) -> list[Message]:
    if len(questions) != len(replies):
        raise RowError(f"has {len(questions)} questions and {len(replies)} answers")
    return [
        {"role": role, "content": words}
        for turn in zip(questions, replies, strict=True)
        for role, words in zip(("user", "assistant"), turn, strict=True)
    ]


# HelpSteer


def from_strength(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """-3 (the first is much better) to 3 (the second is much better), as the dataset card of HelpSteer2 has it. Raises RowError."""
    strength = parse_number(values["preference"])
    if strength is None or not -3 <= strength <= 3:
        raise RowError(f"{mapped.columns['preference']} is {str(values['preference'])[:40]!r}, no number from -3 to 3")
    if not strength:
        raise RowError(f"is a tie: {mapped.columns['preference']} is 0")
    return make_preferred_pair(values, *sides_of(values, mapped), strength < 0, strength=abs(strength))


FORMATS = (
    Format(
        "arena-votes",
        "Chatbot Arena votes (LMSYS)",
        "The answer of the model that won is chosen, the other rejected.",
        Form.PREFERENCE,
        (
            make_prompt_part("prompt"),
            make_first_part("response_a"),
            make_second_part("response_b"),
            FormatPart("first_wins", "says which answer is better", ("winner_model_a",)),
            FormatPart("second_wins", "says which answer is better", ("winner_model_b",)),
            FormatPart("tie", "says whether neither is better", ("winner_tie",)),
        ),
        from_votes,
    ),
    Format(
        "arena",
        "Chatbot Arena conversations (LMSYS)",
        "What the two conversations share becomes the prompt; the rest of the winner's is chosen, of the other's rejected.",
        Form.PREFERENCE,
        (make_first_part("conversation_a"), make_second_part("conversation_b"), make_preference_part("winner")),
        from_words,
        known_words,
        settings=SAYS,
        prefill=words_for,
    ),
    Format(
        "helpsteer2",
        "HelpSteer preference",
        "The sign of the preference says which response is better: below 0 the first, above 0 the second.",
        Form.PREFERENCE,
        (
            make_prompt_part("prompt", "context"),
            make_first_part("response_1", "response1"),
            make_second_part("response_2", "response2"),
            make_preference_part("preference_strength", "overall_preference"),
        ),
        from_strength,
    ),
    Format(
        "compared",
        "Two answers and which is better",
        "The answer that the preference names is chosen, the other rejected.",
        Form.PREFERENCE,
        (
            make_prompt_part("prompt", "question", "instruction", "input", "query", "problem", needed=False),
            make_first_part("response_a", "answer_a", "response_1", "answer_1", "response1", "answer1", "completion_a", "output_1", "text1", "a"),
            make_second_part("response_b", "answer_b", "response_2", "answer_2", "response2", "answer2", "completion_b", "output_2", "text2", "b"),
            make_preference_part("winner", "preference", "preferred", "better", "choice", "label", "chosen", "vote", "verdict"),
            SYSTEM,
            TOOLS,
        ),
        from_words,
        known_words,
        settings=SAYS,
        prefill=words_for,
        by_hand=True,
    ),
)
