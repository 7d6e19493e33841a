"""Rows as pages show them: texts as pieces for text nodes, the words that differ between chosen and rejected, where each side came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.data.datasets.models import Row
from lab.data.datasets.row_diff import DiffEntry, make_diff_entry
from lab.data.datasets.rows import to_canonical_json
from lab.lib import diff
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces
from lab.teams.accounts.models import Team, User

CUT = 6000  # characters of a text that are shown and compared
LABELS = {"chosen": "Chosen", "rejected": "Rejected", "completion": "Answer", "completions": "Steps", "reference": "Reference"}


@dataclass(frozen=True)
class TextSegment:
    only: bool  # stands on this side alone
    pieces: list[Piece]


@dataclass(frozen=True)
class AnswerDisplay:
    name: str
    label: str
    segments: list[TextSegment]
    cut: int
    source: dict[str, Any] | None  # provenance of the rollout


@dataclass(frozen=True)
class StepDisplay:
    number: int
    good: bool
    pieces: list[Piece]
    marks: list[tuple[str, int]]  # what people said, and how many
    agreement: float | None
    adjudicated: bool


@dataclass(frozen=True)
class SpanDisplay:
    mark: str
    start: int
    end: int
    pieces: list[Piece]
    people: list[str]
    adjudicated: bool


@dataclass(frozen=True)
class RowDisplay:
    entry: DiffEntry
    prompt: list[tuple[str, list[Piece]]]
    answers: list[AnswerDisplay]
    labellers: list[str] = field(default_factory=list)
    prompt_id: int | None = None
    number: int | None = None  # line of its file, from 1
    steps: list[StepDisplay] = field(default_factory=list)
    spans: list[SpanDisplay] = field(default_factory=list)

    @property
    def weight(self) -> Any:
        return self.entry.row.get("weight")

    @property
    def margin(self) -> Any:
        return self.entry.row.get("margin")

    @property
    def label(self) -> bool | None:
        return self.entry.row.get("label")


def build_row_display(source: DiffEntry | Row, names: Mapping[int, str]) -> RowDisplay:
    entry = make_diff_entry(source) if isinstance(source, Row) else source
    row = entry.row
    prompt = [
        (escape_invisible_text(str(message["role"])), list(iterate_text_pieces(format_message_text(message)[:CUT])))
        for message in to_message_list(row.get("prompt"))
    ]
    people = [names.get(user, f"person {user}") for user in entry.labellers]
    prompt_id, number = (source.prompt, source.place + 1) if isinstance(source, Row) else (None, None)
    return RowDisplay(
        entry, prompt, build_answer_displays(entry), people, prompt_id, number, build_step_displays(entry), build_span_displays(entry, names)
    )


def to_message_list(value: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": value}] if isinstance(value, str) else list(value or ())


def format_answer_text(value: Any) -> str:
    """An answer as one text; who else speaks in it stands before what they say."""
    parts = [
        format_message_text(message) if message["role"] == "assistant" else f"[{message['role']}] {format_message_text(message)}"
        for message in to_message_list(value)
    ]
    return value if isinstance(value, str) else "\n\n".join(parts)


def format_message_text(message: Mapping[str, Any]) -> str:
    """What a message says, and below it the tools that it calls."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    told = [f"{call['name']}({call['arguments'] if isinstance(call['arguments'], str) else to_canonical_json(call['arguments'])})" for call in calls]
    return "\n".join([*([str(message["content"])] if message["content"] else []), *(f"[calls] {call}" for call in told)])


def build_step_displays(entry: DiffEntry) -> list[StepDisplay]:
    """As many as fit into what is shown of an answer; at least one."""
    told = entry.provenance.get("steps") or []
    displays, room = list[StepDisplay](), CUT
    for index, (text, good) in enumerate(zip(entry.row.get("completions") or (), entry.row.get("labels") or (), strict=False)):
        if room <= 0:
            break
        details = told[index] if index < len(told) else {}
        counts = Counter((details.get("marks") or {}).values())
        marks = [(mark, counts[mark]) for mark in ("good", "bad", "neutral") if counts[mark]]
        displays.append(
            StepDisplay(index + 1, good, list(iterate_text_pieces(text[:room])), marks, details.get("agreement"), bool(details.get("adjudicated")))
        )
        room -= len(text)
    return displays


def build_span_displays(entry: DiffEntry, names: Mapping[int, str]) -> list[SpanDisplay]:
    return [
        SpanDisplay(
            mark=span["mark"],
            start=span["start"],
            end=span["end"],
            pieces=list(iterate_text_pieces(span["text"][:CUT])),
            people=[names.get(user, f"person {user}") for user in span["labellers"]],
            adjudicated=bool(span.get("adjudicated")),
        )
        for span in entry.provenance.get("spans") or ()
    ]


def build_answer_displays(entry: DiffEntry) -> list[AnswerDisplay]:
    sources = entry.provenance.get("sides") or {}
    if "completions" in entry.row:
        length = sum(len(text) for text in entry.row["completions"])
        return [AnswerDisplay("completions", LABELS["completions"], [], max(0, length - CUT), sources.get("completions"))]
    texts = {name: format_answer_text(entry.row[name]) for name in LABELS if name in entry.row}
    cut = {name: text[:CUT] for name, text in texts.items()}
    if "chosen" in cut:
        spans = diff.diff_words(cut["rejected"], cut["chosen"])
        segments = {
            "chosen": [TextSegment(span.kind == "added", list(iterate_text_pieces(span.text))) for span in spans if span.kind != "removed"],
            "rejected": [TextSegment(span.kind == "removed", list(iterate_text_pieces(span.text))) for span in spans if span.kind != "added"],
        }
    else:
        segments = {name: [TextSegment(False, list(iterate_text_pieces(text)))] for name, text in cut.items()}
    by_person = entry.provenance.get("corrected")  # of a correction alone there is no rollout; the one it corrects is on the item's page
    source = {**sources, "completion": None if by_person else sources.get("chosen") or sources.get("rejected")}
    return [AnswerDisplay(name, LABELS[name], segments[name], len(text) - len(cut[name]), source.get(name)) for name, text in texts.items()]


def names_of(team: Team, users: Iterable[int]) -> dict[int, str]:
    """What labellers of the team are called, also of those who have left it."""
    people = User.objects.filter(pk__in=set(users))
    return {user.pk: str(user.first_name or user) for user in people}
