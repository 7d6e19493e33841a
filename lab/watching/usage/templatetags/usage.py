"""Hours, money and shares as the usage page writes them: ``{% load usage %}``."""

from typing import Any

from django import template

from lab.lib.numbers import NONE

register = template.Library()


@register.filter
def hours(value: Any) -> str:
    """Hours or minutes: 0, 0.02, 3.5, 1 240."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if value < 0.01:
        return "< 0.01"
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}".replace(",", "\u202f")


@register.filter
def money(value: Any, currency: str) -> str:
    if value is None:
        return NONE
    return f"< 0.01 {currency}" if 0 < value < 0.01 else f"{value:,.2f}".replace(",", "\u202f") + f" {currency}"


@register.filter
def percentage(value: Any) -> str:
    """A share within 0 to 1."""
    return NONE if value is None else f"{100 * value:.0f}\u202f%"
