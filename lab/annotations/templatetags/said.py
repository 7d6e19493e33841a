"""``{% load said %}``: text of people and models with its invisible characters named, so that nothing pretends to be what it is not."""

from typing import Any
from urllib.parse import urlencode

from django import template

from lab.trajectories.pieces import named

register = template.Library()

JOINERS = ("\u200d", "\ufe0e")  # hold emoji and letters together


@register.filter(name="named")
def named_filter(text: Any) -> str:
    """For text of models: every invisible character by its code point."""
    return named(str(text))


@register.filter
def spoken(text: Any) -> str:
    """For text of people: as ``named``, but emoji stay whole."""
    parts = [str(text)]
    for joiner in JOINERS:
        parts = [piece for part in parts for piece in interleaved(part.split(joiner), joiner)]
    return "".join(part if part in JOINERS else named(part) for part in parts)


def interleaved(parts: list[str], joiner: str) -> list[str]:
    return [piece for index, part in enumerate(parts) for piece in ([joiner, part] if index else [part])]


@register.filter
def tag_query(name: Any) -> str:
    """The query string of the browser that shows the rollouts with a tag."""
    return urlencode({"f": f"tag:has:{name}"})
