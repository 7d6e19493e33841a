"""Model text cut into pieces that a template or a script puts on the page as text nodes: what is plain, what is thought, what is invisible.

Everything here is about code points; a piece is (kind, text), and the texts of the pieces joined are the text that went in, save that an
"invisible" piece carries the characters it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape  # Django's own tells lazy and safe texts apart, for half of the time of a cell

import numpy as np
import numpy.typing as npt
from django.utils.safestring import SafeString

# Controls besides tab and newline, zero-width and bidirectional marks, tags, the byte order mark, and what replaced NUL and surrogates.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\ufff9-\ufffc\U000e0000-\U000e0fff]+"
)
EMPTY = SafeString('<span class="muted">empty</span>')
BLANK = SafeString('<span class="muted">white space only</span>')  # a link needs words that can be seen
FOLD_FROM = 600  # characters of thinking that are shown without unfolding
CUT_AT = 6000  # characters of a completion that are shown before "show all"
# What opens thinking, or a stretch by which a policy asks its environment for something: the general forms and those of this lab's own tasks.
OPENING = re.compile("<(think|tool_call|function_call|search|python|code|sql|bash|browse)>")
CALLED = re.compile(r'"name"\s*:\s*"([^"\\\n]{1,60})"')
GIVEN = "given"  # role of what a method put in front of the policy's own tokens; without loss
INVISIBLE_HTML = '<span class="invisible" title="invisible characters">⟨%s⟩</span>'
NAMED = 8  # code points of one invisible run that are named


@dataclass(frozen=True)
class Piece:
    kind: str  # plain, invisible
    text: str

    @property
    def label(self) -> str:
        """What stands on the page for invisible characters: their code points, shortened when there are many."""
        names = " ".join(f"U+{ord(character):04X}" for character in self.text[:NAMED])
        return names if len(self.text) <= NAMED else f"{names} … ({len(self.text):,} characters)"


@dataclass(frozen=True)
class Block:
    """A stretch of a completion by one author: the policy, its thinking, its call of a tool, the environment, or a method that gave it as context."""

    kind: str  # policy, think, call, environment, given
    role: str
    text: str
    called: str = ""  # what a call asks for: the tool's name

    @property
    def pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.text))

    @property
    def folded(self) -> bool:
        return self.kind in ("think", "environment") and len(self.text) > FOLD_FROM

    @property
    def fold_words(self) -> str:
        """What stands on the fold: whose words are behind it."""
        return "thinking" if self.kind == "think" else self.title

    @property
    def length(self) -> int:
        return len(self.text)

    @property
    def title(self) -> str:
        """The tool a call names, else who wrote it."""
        return escape_invisible_text(self.called or self.role)


def has_invisible_text(text: str) -> bool:
    """Whether there is a character in it that cannot be seen. Most texts are of ASCII, for which one need not search."""
    line = text.replace("\n", "").replace("\t", "")
    return not (line.isascii() and line.isprintable()) and INVISIBLE.search(text) is not None


def iterate_text_pieces(text: str) -> Iterator[Piece]:
    """The text with runs of invisible characters told apart from the rest."""
    if text and not has_invisible_text(text):
        yield Piece("plain", text)
        return
    at = 0
    for match in INVISIBLE.finditer(text):
        if match.start() > at:
            yield Piece("plain", text[at : match.start()])
        yield Piece("invisible", match.group())
        at = match.end()
    if at < len(text):
        yield Piece("plain", text[at:])


def render_text(text: str) -> SafeString:
    """The text as HTML, its invisible characters named. Escaped here, for rows and cards that no template writes."""
    if not has_invisible_text(text):
        return SafeString(escape(text))
    return render_pieces(iterate_text_pieces(text))


def render_pieces(pieces: Iterable[Piece]) -> SafeString:
    """As ``render_text``, of a text cut into pieces already."""
    return SafeString("".join(escape(piece.text) if piece.kind == "plain" else INVISIBLE_HTML % escape(piece.label) for piece in pieces))


def escape_invisible_text(text: str) -> str:
    """The text with its invisible characters written out, for names that stand outside a completion."""
    if not has_invisible_text(text):
        return text
    return "".join(piece.text if piece.kind == "plain" else f"⟨{piece.label}⟩" for piece in iterate_text_pieces(text))


def split_completion_blocks(completion: str, turns: Sequence[Sequence[object]], lengths: npt.NDArray[np.int64] | None = None) -> list[Block]:
    """The completion by author. ``turns`` are [role, start, end] in tokens; ``lengths`` (T,) says how many code points each token adds. Of a rollout
    without tokens (T = 0) turns are in code points; ``lengths`` None: not known.
    """
    blocks: list[Block] = []
    for role, text in by_turn(completion, turns, lengths):
        if role != "assistant":
            blocks.append(Block("given" if role == GIVEN else "environment", role, text))
            continue
        blocks += own_blocks(text, role)
    return blocks


def own_blocks(text: str, role: str) -> Iterator[Block]:
    """What the policy wrote, apart from its thinking and its calls. Thinking that never ends goes to the end; a call that never ends is none."""
    at, unclosed = 0, set[str]()
    for match in OPENING.finditer(text):
        tag = match[1]
        if match.start() < at or tag in unclosed:
            continue
        end = text.find(f"</{tag}>", match.end())
        if end < 0 and tag != "think":
            unclosed.add(tag)  # looked for once, however often it opens
            continue
        end = len(text) if end < 0 else end + len(tag) + 3
        if match.start() > at:
            yield Block("policy", role, text[at : match.start()])
        part = text[match.start() : end]
        yield Block("think", role, part) if tag == "think" else Block("call", role, part, extract_tool_name(tag, part))
        at = end
    if at < len(text):
        yield Block("policy", role, text[at:])


def extract_tool_name(tag: str, text: str) -> str:
    """The name that a call in JSON gives its tool; of other calls the tag is the tool."""
    name = CALLED.search(text) if tag in ("tool_call", "function_call") else None
    return name[1] if name else tag


def by_turn(completion: str, turns: Sequence[Sequence[object]], lengths: npt.NDArray[np.int64] | None) -> Iterator[tuple[str, str]]:
    """(role, text) of each turn; text that no turn covers belongs to the policy, and so does everything when the lengths are not known."""
    if lengths is None or all(turn[0] == "assistant" for turn in turns):
        yield "assistant", completion
        return
    edges = np.concatenate([[0], np.cumsum(lengths)]) if len(lengths) else np.arange(len(completion) + 1)
    at = 0
    for role, start, end in turns:
        begin, stop = (int(edges[min(max(int(str(token)), 0), len(edges) - 1)]) for token in (start, end))
        if begin > at:
            yield "assistant", completion[at:begin]
            at = begin
        if stop > at:
            yield str(role), completion[at:stop]
            at = stop
    if at < len(completion):
        yield "assistant", completion[at:]
