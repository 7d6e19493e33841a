"""A run's log as lines of styled spans. Terminal sequences become class names out of a fixed set, or vanish; text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from django.db.models import Q

from lab.lib.numbers import parse_whole_number
from lab.training.runs.models import LogChunk, Run

Span = tuple[str, str]  # classes, text
Line = list[Span]

SHOWN_LINES = 2000
BLOCK = 200  # chunks read at a time
MAX_LINE = 20_000  # characters of one line that are shown
MATCHES = 500

# CSI sequences, OSC strings (titles, links) up to their end or the end of the line, and two-character escapes.
ESCAPE = re.compile(r"\x1b(?:\[(?P<csi>[0-?]*)[ -/]*(?P<final>[@-~])|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[P^_X][^\x1b\n]*(?:\x1b\\)?|[ -/]*[0-~]|)")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BIDI = re.compile("[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
ATTRIBUTES = {1: "bold", 2: "dim", 3: "italic", 4: "underline"}


@dataclass
class TextStyle:
    """The graphic state that SGR sequences change."""

    colour: str = ""
    attributes: frozenset[str] = frozenset()

    @property
    def classes(self) -> str:
        return " ".join(f"ansi-{name}" for name in sorted(self.attributes | ({self.colour} if self.colour else set())))

    def apply(self, parameters: str) -> None:
        codes = [int(code) if code.isdigit() and len(code) < 4 else 0 for code in re.split("[;:]", parameters)]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.colour, self.attributes = "", frozenset()
            elif code in ATTRIBUTES:
                self.attributes |= {ATTRIBUTES[code]}
            elif code in (22, 23, 24):
                self.attributes -= {"bold", "dim"} if code == 22 else {ATTRIBUTES[code - 20]}
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.colour = COLOURS[code % 10]
            elif code == 39:
                self.colour = ""
            elif code in (38, 48):  # 256 colours and RGB: their parameters are passed over
                del codes[: 2 if codes[:1] == [5] else 4]


def collapse_progress_line(line: str) -> str:
    """What a terminal would show of a line in which a progress bar went back to the start again and again."""
    line = line.rstrip("\r")
    return line.rsplit("\r", 1)[-1] if "\r" in line else line


def escape_control_characters(text: str) -> str:
    """Control, zero-width and bidirectional characters by name, so that a log cannot reorder or hide what the page says."""
    text = CONTROL.sub(lambda match: chr(0x2400 + ord(match.group())) if ord(match.group()) < 0x20 else f"⟨U+{ord(match.group()):04X}⟩", text)
    return BIDI.sub(lambda match: f"⟨U+{ord(match.group()):04X}⟩", text)


def parse_styled_spans(line: str, style: TextStyle) -> Line:
    """One line, without its newline; ``style`` carries over to the next."""
    line = collapse_progress_line(line)
    if len(line) > MAX_LINE:
        line = line[:MAX_LINE] + f" … ({len(line) - MAX_LINE:,} more characters; download the log to see them)"
    spans: Line = []
    at = 0
    for match in ESCAPE.finditer(line):
        append_span(spans, style.classes, line[at : match.start()])
        if match["final"] == "m":
            style.apply(match["csi"])
        at = match.end()
    append_span(spans, style.classes, line[at:])
    return spans


def append_span(spans: Line, classes: str, text: str) -> None:
    if text:
        spans.append((classes, escape_control_characters(text)))


@dataclass(frozen=True)
class LogTail:
    """Lines of a log. ``cursor`` is where the next read goes on: the start of the last line if that has no newline yet (``open_line``)."""

    lines: list[Line]
    cursor: str
    open_line: bool
    earlier: bool = False
    more: bool = False


def lines_of(chunks: Iterable[LogChunk], skip: int = 0) -> Iterator[tuple[Line, str, bool]]:
    """(line, cursor at its start, whether it is finished) of each line. A notice is a line of its own."""
    style = TextStyle()
    pending, start = "", ""
    for chunk in chunks:
        at, skip = min(skip, len(chunk.text)), 0
        if chunk.notice:
            if pending:  # what was printed before the notice stays before it
                yield parse_styled_spans(pending, style), start, True
                pending, start = "", ""
            if not at:
                yield [("notice", escape_control_characters(chunk.text.strip()))], f"{chunk.offset}.{chunk.pk}.{max(1, len(chunk.text))}", True
            continue
        while (end := chunk.text.find("\n", at)) >= 0:
            yield parse_styled_spans(pending + chunk.text[at:end], style), f"{chunk.offset}.{chunk.pk}.{end + 1}", True
            pending, start, at = "", "", end + 1
        if at < len(chunk.text):
            start = start or f"{chunk.offset}.{chunk.pk}.{at}"
            pending += chunk.text[at:]
    if pending:
        yield parse_styled_spans(pending, style), start, False


def read_cursor(text: str) -> tuple[int, int, int] | None:
    parts = text.split(".")
    numbers = [number for part in parts if (number := parse_whole_number(part)) is not None]
    return (numbers[0], numbers[1], numbers[2]) if len(parts) == len(numbers) == 3 else None


def read_log_tail(run: Run, attempt: int, cursor: str = "") -> LogTail:
    """The newest lines of an attempt's log, or those after ``cursor``."""
    rows = LogChunk.objects.filter(run=run, attempt=attempt)
    position = read_cursor(cursor)
    if position is None:
        newest = list(rows.order_by("-offset", "-pk")[:BLOCK])[::-1]
        earlier = len(newest) == BLOCK and newest[0].offset > 0
        return tail_of(newest, 0, "", earlier)
    offset, pk, skip = position
    chunks = list(rows.filter(Q(offset=offset, pk__gte=pk) | Q(offset__gt=offset)).order_by("offset", "pk")[:BLOCK])
    tail = tail_of(chunks, skip if chunks and chunks[0].pk == pk else 0, cursor)
    return replace(tail, more=len(chunks) == BLOCK)


def tail_of(chunks: list[LogChunk], skip: int, cursor: str, earlier: bool = False) -> LogTail:
    rows = list(lines_of(chunks, skip))
    if not rows:
        return LogTail([], cursor, False, earlier)
    lines = [line for line, _, _ in rows]
    return LogTail(lines[-SHOWN_LINES:], rows[-1][1], not rows[-1][2], earlier or len(lines) > SHOWN_LINES)


def search_log_lines(run: Run, attempt: int, words: str) -> tuple[list[tuple[int, Line]], bool]:
    """(line number, line) of the lines that contain ``words``, whatever the case, and whether there are more than MATCHES."""
    needle = words.casefold()
    matches: list[tuple[int, Line]] = []
    for number, (line, _, _) in enumerate(lines_of(LogChunk.objects.filter(run=run, attempt=attempt).order_by("offset", "pk").iterator()), 1):
        if needle in "".join(text for _, text in line).casefold():
            if len(matches) == MATCHES:
                return matches, True
            matches.append((number, line))
    return matches, False


def iterate_log_text(run: Run, attempt: int) -> Iterator[str]:
    """The log as it was written, notices left out, in pieces."""
    rows = LogChunk.objects.filter(run=run, attempt=attempt, notice=False).order_by("offset", "pk")
    return rows.values_list("text", flat=True).iterator()
