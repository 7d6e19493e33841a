"""Rows as pages show them: texts as pieces for text nodes, the words that differ between chosen and rejected, where each side came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.data.datasets.marked_text import (
    TextSegment,
    cut_into_segments,
    format_answer_text,
    format_message_text,
    list_shown_marks,
    to_message_list,
)
from lab.data.datasets.models import Row
from lab.data.datasets.row_diff import DiffEntry, make_diff_entry
from lab.data.datasets.rows import SPANS
from lab.data.datasets.span_marks import count_span_characters
from lab.lib import diff
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces
from lab.teams.accounts.models import Team, User
from trainers.contract.spans import span_column

CUT = 6000  # characters of a text that are shown and compared
LABELS = {"chosen": "Chosen", "rejected": "Rejected", "completion": "Answer", "completions": "Steps", "reference": "Reference"}


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
    def marked(self) -> dict[str, int]:
        """Characters in good and in bad spans; empty without spans."""
        return count_span_characters([self.entry.row], SPANS)

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
    shown = {name: format_answer_text(entry.row[name]) for name in LABELS if name in entry.row}
    texts = {name: answer.text for name, answer in shown.items()}
    cut = {name: text[:CUT] for name, text in texts.items()}
    parts = {name: [(False, text)] for name, text in cut.items()}
    if "chosen" in cut:
        changes = diff.diff_words(cut["rejected"], cut["chosen"])
        parts["chosen"] = [(change.kind == "added", change.text) for change in changes if change.kind != "removed"]
        parts["rejected"] = [(change.kind == "removed", change.text) for change in changes if change.kind != "added"]
    marks = {name: list_shown_marks(entry.row.get(span_column(name)) or (), answer.places) for name, answer in shown.items()}
    segments = {name: list(cut_into_segments(parts[name], marks[name])) for name in texts}
    by_person = entry.provenance.get("corrected")  # of a correction alone there is no rollout; the one it corrects is on the item's page
    source = {**sources, "completion": None if by_person else sources.get("chosen") or sources.get("rejected")}
    return [AnswerDisplay(name, LABELS[name], segments[name], len(text) - len(cut[name]), source.get(name)) for name, text in texts.items()]


def names_of(team: Team, users: Iterable[int]) -> dict[int, str]:
    """What labellers of the team are called, also of those who have left it."""
    people = User.objects.filter(pk__in=set(users))
    return {user.pk: str(user.first_name or user) for user in people}
