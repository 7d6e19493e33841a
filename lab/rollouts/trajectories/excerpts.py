"""A long text on a line or two: its beginning and its end, where an answer stands."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.safestring import SafeString

from lab.rollouts.trajectories.text_pieces import escape_invisible_text, render_text

START_AT_MOST = 300  # characters: what a line or two of a wide page hold
END_AT_MOST = 60
WHOLE_UP_TO = 110  # characters that are not worth cutting
LINE_END = "\u21b5 "  # what a line end looks like where a text has one paragraph
# The end is cut off at its left where it does not fit: see .words-end in the style sheet.
END_HTML = '<span class="words-end"><span><span>%s</span></span></span>'


@dataclass(frozen=True)
class Excerpt:
    """``end`` is empty where the text is short, or where its end is not known."""

    start: str
    end: str = ""
    middle: str = ""  # what was left out, as far as it was read

    def render(self) -> SafeString:
        """As HTML, escaped; of two lines where there is an end."""
        start = render_line(self.start)
        return SafeString(f'<span class="words-start">{start}</span>{END_HTML % render_line(self.end)}') if self.end else start

    def render_middle(self) -> SafeString:
        """What stands hidden on the page, for who looks for words in it."""
        return render_text(self.middle)


def render_line(text: str) -> SafeString:
    """The text as HTML in one paragraph, with what cannot be seen written out."""
    return SafeString(render_text(text).replace("\n", LINE_END))


def flatten_end(ending: str) -> str:
    """The end of a text as plain text in one paragraph, for a script to show."""
    return escape_invisible_text(ending.rstrip()[-END_AT_MOST:]).replace("\n", LINE_END)


def make_excerpt(text: str, *, is_cut: bool = False, ending: str = "", whole_up_to: int = WHOLE_UP_TO) -> Excerpt:
    """Of a text, or of the beginning of one (``is_cut``), whose end is ``ending`` where that is known.

    ``whole_up_to``: characters that are not worth cutting. A text that is little longer is halved, so that two lines hold all of it.
    """
    if is_cut:
        return Excerpt(text[:START_AT_MOST], ending.rstrip()[-END_AT_MOST:], text[START_AT_MOST:])
    text = text.rstrip()
    if len(text) <= whole_up_to:
        return Excerpt(text)
    end = min(END_AT_MOST, len(text) // 2)
    until = min(START_AT_MOST, len(text) - end)
    return Excerpt(text[:until], text[-end:], text[until:-end])
