"""An answer as pages show it, cut where it differs from the other one and where spans are marked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.data.datasets.rows import to_canonical_json
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces


@dataclass(frozen=True)
class TextSegment:
    only: bool  # stands on this side alone
    pieces: list[Piece]
    mark: str = ""  # good or bad, where it is in a marked span


@dataclass(frozen=True)
class AnswerText:
    """``text``: what is shown. ``places``: (first character of a message in what spans count in, its place in ``text``, its length)."""

    text: str
    places: tuple[tuple[int, int, int], ...] = ()


def to_message_list(value: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": value}] if isinstance(value, str) else list(value or ())


def format_message_text(message: Mapping[str, Any]) -> str:
    """What a message says, and below it the tools that it calls."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    told = [f"{call['name']}({call['arguments'] if isinstance(call['arguments'], str) else to_canonical_json(call['arguments'])})" for call in calls]
    return "\n".join([*([str(message["content"])] if message["content"] else []), *(f"[calls] {call}" for call in told)])


def format_answer_text(value: Any) -> AnswerText:
    """An answer as one text; who else speaks in it stands before what they say."""
    if isinstance(value, str):
        return AnswerText(value, ((0, 0, len(value)),))
    text, places, counted = "", list[tuple[int, int, int]](), 0
    for message in to_message_list(value):
        text += "\n\n" if places else ""
        text += "" if message["role"] == "assistant" else f"[{message['role']}] "
        places.append((counted, len(text), len(message["content"] or "")))
        counted += len(message["content"] or "")
        text += format_message_text(message)
    return AnswerText(text, tuple(places))


def list_shown_marks(spans: Iterable[Mapping[str, Any]], places: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, str]]:
    """(start, end, label) of the spans in the text that is shown, in order; a span over two messages is two."""
    shown = []
    for span in spans:
        for counted, place, length in places:
            start, end = max(span["start"], counted), min(span["end"], counted + length)
            if start < end:
                shown.append((start - counted + place, end - counted + place, str(span["label"])))
    return sorted(shown)


def cut_into_segments(parts: Iterable[tuple[bool, str]], marks: Sequence[tuple[int, int, str]]) -> Iterator[TextSegment]:
    """``parts``: (stands on this side alone, text), which joined are the text; ``marks`` in order, without overlap."""
    left, begin = list(marks)[::-1], 0
    for only, text in parts:
        at, end = begin, begin + len(text)
        while at < end:
            while left and left[-1][1] <= at:
                left.pop()
            inside = bool(left) and left[-1][0] <= at
            until = min(end, left[-1][1] if inside else left[-1][0]) if left else end
            yield TextSegment(only, list(iterate_text_pieces(text[at - begin : until - begin])), left[-1][2] if inside else "")
            at = until
        begin = end
