"""Marked spans on the tokens of whoever trains: characters are brought onto tokens by the offsets of the trainer's own tokenizer.

A token that a span's edge cuts counts by the share of its characters inside. What the chat template adds (the prompt, names of roles, the end of a
turn) is in no span.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from trainers.contract.spans import BAD, GOOD, Row, Span, answer_text, find_spans_of


@dataclass(frozen=True)
class TokenSpans:
    """``ids``: prompt and answer as the trainer tokenizes them, N tokens; ``start``: the first that is not the prompt's.

    ``good``, ``bad``: N shares of a token's characters, 0 to 1. ``firsts``: for each span that was found, its first token. ``lost``: spans whose
    text does not stand in what is trained on.
    """

    ids: list[int]
    start: int
    good: list[float]
    bad: list[float]
    firsts: list[int]
    lost: int


def mark_tokens(tokenizer: Any, row: Row, side: str) -> TokenSpans:
    """``row``: prompt and ``side``, lists of messages. The tokenizer must know offsets (a fast one)."""
    spans, lost = find_spans_of(row, side)
    render = tokenizer.apply_chat_template
    asked: str = render(row["prompt"], tools=row.get("tools"), add_generation_prompt=True, tokenize=False)
    whole: str = render([*row["prompt"], *row[side]], tools=row.get("tools"), tokenize=False)
    before: list[int] = tokenizer(asked, add_special_tokens=False)["input_ids"]
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    placed = place_spans(spans, row[side], whole, count_common_start(asked, whole))
    ends = [end for _, end in offsets]
    firsts = [bisect_right(ends, start) for start, _, _ in placed]
    good, bad = (share_of_tokens([(start, end) for start, end, said in placed if said == label], offsets, len(whole)) for label in (GOOD, BAD))
    return TokenSpans(ids, count_common_start(before, ids), good, bad, firsts, lost + len(spans) - len(placed))


def count_common_start(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items both begin with."""
    return next((place for place, (own, theirs) in enumerate(zip(one, other, strict=False)) if own != theirs), min(len(one), len(other)))


def place_spans(spans: Sequence[Span], messages: Sequence[Row], whole: str, at: int) -> list[tuple[int, int, str]]:
    """(start, end, label) of each span in the rendered text, in order; ``at``: where the answer begins there.

    A template may trim or rearrange a message. Then a span is found by its text alone, where that stands once in the answer and once in what was
    rendered; others are left out.
    """
    begins, shown = list(accumulate((len(message["content"]) for message in messages), initial=0)), find_messages(messages, whole, at)
    text, rendered, placed = answer_text(messages), whole[at:], []
    for span in spans:
        start, end = span["start"], span["end"]
        number = bisect_right(begins, start) - 1
        if shown[number] is not None and end <= begins[number + 1]:
            shift = shown[number] - begins[number]
            placed.append((start + shift, end + shift, span["label"]))
        elif text.count(span["text"]) == rendered.count(span["text"]) == 1:
            found = at + rendered.index(span["text"])
            placed.append((found, found + end - start, span["label"]))
    return placed


def find_messages(messages: Sequence[Row], whole: str, at: int) -> list[Any]:
    """Where the content of each message begins in the rendered text; None where it does not stand there as it is."""
    places: list[Any] = []
    for message in messages:
        found = whole.find(message["content"], at)
        places.append(found if found >= 0 else None)
        at = found + len(message["content"]) if found >= 0 else at
    return places


def share_of_tokens(places: Sequence[tuple[int, int]], offsets: Sequence[tuple[int, int]], length: int) -> list[float]:
    """For each token the share of its characters inside the places, which do not overlap; 0 for a token without characters."""
    steps = [0] * (length + 1)
    for start, end in places:
        steps[start] += 1
        steps[end] -= 1
    inside = list(accumulate(accumulate(steps), initial=0))  # characters inside among the first n
    return [(inside[end] - inside[start]) / (end - start) if end > start else 0.0 for start, end in offsets]
