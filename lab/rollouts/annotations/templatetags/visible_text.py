"""``{% load visible_text %}``: text of people and models with its invisible characters named, so that nothing pretends to be what it is not."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django import template
from django.utils.safestring import SafeString

from lab.rollouts.trajectories.text_pieces import BLANK, EMPTY, Piece, escape_invisible_text, render_pieces

register = template.Library()

JOINERS = ("\u200d", "\ufe0e")  # hold emoji and letters together


@register.filter(name="named")
def named_filter(text: Any) -> str:
    """For text of models: every invisible character by its code point."""
    return escape_invisible_text(str(text))


@register.filter
def show_pieces(pieces: Iterable[Piece]) -> SafeString:
    """For text of models cut into pieces: what is plain as text, what is invisible by its code points."""
    return render_pieces(pieces)


@register.filter
def show_link_pieces(pieces: Iterable[Piece]) -> SafeString:
    """As ``show_pieces``, for a link or a heading, which need words that can be seen and spoken."""
    shown = list(pieces)
    if any(piece.kind != "plain" or piece.text.strip() for piece in shown):
        return render_pieces(shown)
    return BLANK if shown else EMPTY


@register.filter
def spoken(text: Any) -> str:
    """For text of people: as ``named``, but emoji stay whole."""
    parts = [str(text)]
    for joiner in JOINERS:
        parts = [piece for part in parts for piece in interleave_joiner(part.split(joiner), joiner)]
    return "".join(part if part in JOINERS else escape_invisible_text(part) for part in parts)


def interleave_joiner(parts: list[str], joiner: str) -> list[str]:
    return [piece for index, part in enumerate(parts) for piece in ([joiner, part] if index else [part])]


@register.filter
def tag_query(name: Any) -> str:
    """The query string of the browser that shows the rollouts with a tag."""
    return urlencode({"f": f"tag:has:{name}"})
