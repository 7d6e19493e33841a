"""A completion in a cell: how it begins and how it ends, because the answer stands at its end. What a search found in between follows
the first words.

Both have one line in the table, which the style sheet cuts at the side that matters less. Texts are escaped here.
"""

from __future__ import annotations

import re

from django.utils.safestring import SafeString

from lab.rollouts.browse.found import Found
from lab.rollouts.browse.pages import END_CUT_AT
from lab.rollouts.trajectories.text_pieces import render_text

LINE_END = "\u21b5 "  # what a line end looks like in a cell, which has one paragraph
WHOLE = 48  # characters that the narrowest column shows in two lines
END = 80  # characters of the end
LAST_LINE = 12  # characters of a last line that can be all of the end
ALWAYS_SEEN, BEFORE_FOUND = 24, 10  # characters of a line that the narrowest column shows, and of them those before what was found
SPACE = re.compile(r"\s+")


def render_completion_ends(head: str, tail: str, found: Found | None = None) -> SafeString:
    """``head`` and ``tail`` as the database cut them: only a tail of END_CUT_AT characters or more may have a gap before it."""
    start, end = split_completion(head, tail)
    if not end:
        return render_line(start, found)
    if found and not (found.is_in(start[:ALWAYS_SEEN]) or found.is_in(end[-ALWAYS_SEEN:])):
        start = f"{start[:BEFORE_FOUND]} … {found.around}"
    first, last = render_line(start, found), render_line(end, found)
    return SafeString(f'<span class="words-start">{first}</span> <span class="words-end"><bdi dir="ltr">{last}</bdi></span>')


def split_completion(head: str, tail: str) -> tuple[str, str]:
    """How a completion begins and how it ends; no end where it is short enough to be shown whole."""
    if len(tail) >= END_CUT_AT:
        end = tail.rstrip()[-END:]
        return head + " …", end[find_break(end, 0) :] if len(end) == END else end
    text = (head + tail).rstrip()
    if len(text) <= WHOLE:
        return text, ""
    at = max(len(text) - END, len(text) // 2)
    line = text.find("\n", at, len(text) - LAST_LINE)
    at = line + 1 if line >= 0 else find_break(text, at)
    return text[:at].rstrip(), text[at:]


def find_break(text: str, at: int) -> int:
    """The start of the first word from ``at`` on, unless that is far."""
    space = SPACE.search(text, at, at + (len(text) - at) // 2)
    return space.end() if space else at


def render_line(text: str, found: Found | None = None) -> SafeString:
    """A model's or a person's text with what cannot be seen written out, and what was searched for marked."""
    if found is None:
        return SafeString(render_text(text).replace("\n", LINE_END))
    parts, at = [], 0
    for match in found.pattern.finditer(text):
        parts += [render_line(text[at : match.start()]), "<mark>", render_line(match.group()), "</mark>"]
        at = match.end()
    return SafeString("".join([*parts, render_line(text[at:])]))
