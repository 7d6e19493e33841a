"""Template tags and filters of every page: ``{% load lab %}``."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from lab.lib import numbers, timeago
from lab.lib.addresses import build_numbered_address

register = template.Library()


@register.simple_tag
@lru_cache(None)
def icon(name: str) -> SafeString:
    """One of the symbols in static/base/icons.svg; decoration, so hidden from screen readers."""
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', static("base/icons.svg"), name)


@register.simple_tag
def numbered_url(page: str, *numbers: int) -> str:
    """``{% url %}`` for pages whose address ends with numbers, in lists of many."""
    return build_numbered_address(page, numbers)


@register.simple_tag
def status_chip(status: str) -> SafeString:
    """A run's status as word, colour and shape (lab.css); a script updates it through data-status and the text."""
    return format_html('<span class="chip" data-status="{}">{}</span>', status, status)


@register.simple_tag(name="when")
def render_time_ago(moment: datetime | None) -> SafeString:
    """A relative time, "5 min ago", whose tooltip is the exact one; base/page.js keeps the age current through data-since."""
    return render_age(moment, now="a moment", after=" ago")


@register.simple_tag(name="age")
def render_bare_age(moment: datetime | None) -> SafeString:
    """The same without "ago", where a heading or a preposition already says that it is an age."""
    return render_age(moment, now="now", after="")


def render_age(moment: datetime | None, now: str, after: str) -> SafeString:
    """The age in its time element, ``now`` in place of "now", and ``after`` behind the element, where base/page.js leaves it alone."""
    if moment is None:
        return format_html("{}", numbers.NONE)
    exact = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    words = timeago.format_age(moment)
    element = format_html('<time datetime="{}" title="{}" data-since>{}</time>', moment.isoformat(), exact, now if words == "now" else words)
    return format_html('<span class="nowrap">{}{}</span>', element, after) if after else element


@register.filter
def number(value: Any) -> str:
    return numbers.format_number(value)


@register.filter
def compact(value: Any) -> str:
    return numbers.format_compact_count(value) if isinstance(value, int | float) else numbers.NONE


@register.filter
def size(value: Any) -> str:
    return numbers.format_byte_size(value) if isinstance(value, int | float) else numbers.NONE


@register.filter
def duration(value: Any) -> str:
    return timeago.format_duration(value) if isinstance(value, int | float) else numbers.NONE


@register.filter
def call_time(value: Any) -> str:
    """Seconds that a call took, in milliseconds below one second."""
    if not isinstance(value, int | float):
        return numbers.NONE
    return f"{numbers.format_number(value)} s" if value >= 1 else f"{numbers.format_number(1000 * value)} ms"


@register.filter
def initial(value: Any) -> str:
    return str(value).strip()[:1].upper() or "?"


@register.filter
def at(mapping: Mapping[str, Any], key: str) -> Any:
    """The entry of a mapping whose key a template cannot write with a dot."""
    return mapping.get(key, "")


@register.filter
def words(name: str) -> str:
    """A name in code as words: prompts_per_step is "prompts per step"."""
    return name.replace("_", " ").replace("heldout", "held-out")


@register.filter
def grouped(value: Any) -> str:
    """A whole count with thousands apart (12 800 with narrow spaces), anything else with few digits."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value):
        return f"{int(value):,}".replace(",", "\u202f")
    return numbers.format_number(value)


@register.filter
def signed(value: Any, digits: int = 3) -> str:
    """A number that is read by its sign: +1.62, −0.54, 0; a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return numbers.NONE
    return f"{value:+.{digits}g}".replace("-", "−") if value else "0"
