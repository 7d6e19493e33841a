"""How shares and coefficients are written: ``{% load quality %}``."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from lab.lib.numbers import NONE

register = template.Library()


@register.filter
def percent(value: Any) -> str:
    """A share from 0 to 1: 75 %, 99.5 % near the ends, a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return NONE
    hundred = 100 * value
    digits = 1 if 0 < hundred < 1 or 99 < hundred < 100 else 0
    return f"{hundred:.{digits}f} %"


@register.filter
def between(share: Any) -> str:
    """The interval of a Share: 61–86 %."""
    return f"{100 * share.low:.0f}–{100 * share.high:.0f} %" if share and share.value is not None else NONE


@register.filter
def two(value: Any) -> str:
    """A coefficient with two decimals and a proper minus."""
    return NONE if value is None else f"{value:.2f}".replace("-", "−")


@register.simple_tag
def interval_bar(low: float | None, value: float | None, high: float | None, least: float = 0.0, most: float = 1.0, mark: Any = None) -> SafeString:
    """A value with its interval on a track from ``least`` to ``most``; quality.js places the parts.

    ``mark`` is a thin line, such as chance; text, as a template gives for a name it does not know, is none.
    """
    if value is None:
        return SafeString("")
    low, high = (value if low is None else low), (value if high is None else high)
    places = [round(min(1.0, max(0.0, (end - least) / (most - least))), 4) for end in (low, value, high)]
    thin = round((mark - least) / (most - least), 4) if isinstance(mark, int | float) else ""
    return format_html(
        '<span class="interval-bar" aria-hidden="true" data-low="{}" data-value="{}" data-high="{}" data-mark="{}"><i></i><b></b><u></u></span>',
        *places,
        thin,
    )
