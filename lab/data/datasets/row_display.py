"""Rows as pages show them: texts as pieces for text nodes, the words that differ between chosen and rejected, where each side came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.data.datasets.models import Row
from lab.data.datasets.row_diff import Entry, make_diff_entry
from lab.data.datasets.rows import to_canonical_json
from lab.lib import diff
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces
from lab.teams.accounts.models import Team, User

CUT = 6000  # characters of a text that are shown and compared
LABELS = {"chosen": "Chosen", "rejected": "Rejected", "completion": "Answer", "completions": "Steps", "reference": "Reference"}


@dataclass(frozen=True)
class Segment:
    only: bool  # stands on this side alone
    pieces: list[Piece]


@dataclass(frozen=True)
class Answer:
    name: str
    label: str
    segments: list[Segment]
    cut: int
    source: dict[str, Any] | None  # provenance of the rollout


@dataclass(frozen=True)
class Step:
    number: int
    good: bool
    pieces: list[Piece]
    marks: list[tuple[str, int]]  # what people said, and how many
    agreement: float | None
    adjudicated: bool


@dataclass(frozen=True)
class Span:
    mark: str
    start: int
    end: int
    pieces: list[Piece]
    people: list[str]
    adjudicated: bool


@dataclass(frozen=True)
class Shown:
    entry: Entry
    prompt: list[tuple[str, list[Piece]]]
    answers: list[Answer]
    labellers: list[str] = field(default_factory=list)
    prompt_id: int | None = None
    number: int | None = None  # line of its file, from 1
    steps: list[Step] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    @property
    def weight(self) -> Any:
        return self.entry.row.get("weight")

    @property
    def margin(self) -> Any:
        return self.entry.row.get("margin")

    @property
    def label(self) -> bool | None:
        return self.entry.row.get("label")


def build_row_display(one: Entry | Row, names: Mapping[int, str]) -> Shown:
    found = make_diff_entry(one) if isinstance(one, Row) else one
    row = found.row
    prompt = [
        (escape_invisible_text(str(message["role"])), list(iterate_text_pieces(format_message_text(message)[:CUT])))
        for message in to_message_list(row.get("prompt"))
    ]
    people = [names.get(user, f"person {user}") for user in found.labellers]
    prompt_id, number = (one.prompt, one.place + 1) if isinstance(one, Row) else (None, None)
    return Shown(
        found, prompt, build_answer_displays(found), people, prompt_id, number, build_step_displays(found), build_span_displays(found, names)
    )


def to_message_list(value: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": value}] if isinstance(value, str) else list(value or ())


def format_answer_text(value: Any) -> str:
    """An answer as one text; who else speaks in it stands before what they say."""
    parts = [
        format_message_text(one) if one["role"] == "assistant" else f"[{one['role']}] {format_message_text(one)}" for one in to_message_list(value)
    ]
    return value if isinstance(value, str) else "\n\n".join(parts)


def format_message_text(message: Mapping[str, Any]) -> str:
    """What a message says, and below it the tools that it calls."""
    calls = [one["function"] for one in message.get("tool_calls") or ()]
    told = [f"{one['name']}({one['arguments'] if isinstance(one['arguments'], str) else to_canonical_json(one['arguments'])})" for one in calls]
    return "\n".join([*([str(message["content"])] if message["content"] else []), *(f"[calls] {one}" for one in told)])


def build_step_displays(one: Entry) -> list[Step]:
    """As many as fit into what is shown of an answer; at least one."""
    told = one.provenance.get("steps") or []
    found, room = list[Step](), CUT
    for place, (text, good) in enumerate(zip(one.row.get("completions") or (), one.row.get("labels") or (), strict=False)):
        if room <= 0:
            break
        said = told[place] if place < len(told) else {}
        counts = Counter((said.get("marks") or {}).values())
        marks = [(mark, counts[mark]) for mark in ("good", "bad", "neutral") if counts[mark]]
        found.append(Step(place + 1, good, list(iterate_text_pieces(text[:room])), marks, said.get("agreement"), bool(said.get("adjudicated"))))
        room -= len(text)
    return found


def build_span_displays(one: Entry, names: Mapping[int, str]) -> list[Span]:
    return [
        Span(
            mark=span["mark"],
            start=span["start"],
            end=span["end"],
            pieces=list(iterate_text_pieces(span["text"][:CUT])),
            people=[names.get(user, f"person {user}") for user in span["labellers"]],
            adjudicated=bool(span.get("adjudicated")),
        )
        for span in one.provenance.get("spans") or ()
    ]


def build_answer_displays(one: Entry) -> list[Answer]:
    sources = one.provenance.get("sides") or {}
    if "completions" in one.row:
        length = sum(len(text) for text in one.row["completions"])
        return [Answer("completions", LABELS["completions"], [], max(0, length - CUT), sources.get("completions"))]
    texts = {name: format_answer_text(one.row[name]) for name in LABELS if name in one.row}
    cut = {name: text[:CUT] for name, text in texts.items()}
    if "chosen" in cut:
        spans = diff.diff_words(cut["rejected"], cut["chosen"])
        segments = {
            "chosen": [Segment(span.kind == "added", list(iterate_text_pieces(span.text))) for span in spans if span.kind != "removed"],
            "rejected": [Segment(span.kind == "removed", list(iterate_text_pieces(span.text))) for span in spans if span.kind != "added"],
        }
    else:
        segments = {name: [Segment(False, list(iterate_text_pieces(text)))] for name, text in cut.items()}
    by_person = one.provenance.get("corrected")  # of a correction alone there is no rollout; the one it corrects is on the item's page
    source = {**sources, "completion": None if by_person else sources.get("chosen") or sources.get("rejected")}
    return [Answer(name, LABELS[name], segments[name], len(text) - len(cut[name]), source.get(name)) for name, text in texts.items()]


def names_of(team: Team, users: Iterable[int]) -> dict[int, str]:
    """What labellers of the team are called, also of those who have left it."""
    found = User.objects.filter(pk__in=set(users))
    return {user.pk: str(user.first_name or user) for user in found}
