"""``{% load wins %}``: shares in per cent, and an interval as a small picture."""

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from lab.data.loop.win_rate import WinRate
from lab.lib import numbers

register = template.Library()


@register.filter
def percent(value: Any) -> str:
    """0.4567 is 46 %; a dash where there is no number."""
    return f"{100 * value:.0f}\u202f%" if isinstance(value, int | float) and value == value else numbers.NONE


@register.simple_tag
def interval(rate: WinRate) -> SafeString:
    """A line from 0 to 100 % with the mark of one half, the interval and the value. The words beside it say the same."""
    low, high, value = (round(100 * part, 2) for part in (rate.low, rate.high, rate.value))
    return format_html(
        '<svg class="win-line" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" data-verdict="{}">'
        '<line class="axis" x1="0" y1="6" x2="100" y2="6"></line><line class="half" x1="50" y1="0" x2="50" y2="12"></line>'
        '<rect class="span" x="{}" y="4" width="{}" height="4"></rect><rect class="value" x="{}" y="1" width="0.8" height="10"></rect></svg>',
        rate.verdict,
        low,
        round(max(0.5, high - low), 2),
        round(value - 0.4, 2),
    )
