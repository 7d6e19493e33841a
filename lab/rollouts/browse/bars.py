"""Histograms as bars of an SVG: where each stands, what it says, and the address a click on it leads to."""

from __future__ import annotations

import math
from dataclasses import dataclass

from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from lab.lib.numbers import format_number
from lab.rollouts.browse.address import Address
from lab.rollouts.browse.fields import FIELDS, Field
from lab.rollouts.browse.histograms import Histogram
from lab.rollouts.browse.selection import Filter

WIDTH, HEIGHT = 300.0, 56.0  # units of the SVG's view box
ALONE = 15  # of such bars would fill the width
LEAST = 2.0  # height of a bin with anything in it, so that a single outlier is seen


@dataclass(frozen=True)
class Bar:
    x: float
    width: float
    top: float
    height: float
    label: str
    url: str
    lo: str
    hi: str
    chosen: bool


@dataclass(frozen=True)
class DrawnHistogram:
    field: Field
    bars: list[Bar]
    low: str
    high: str
    label: str
    cleared: str  # the address without a choice in this histogram; "" where there is none

    @property
    def links(self) -> SafeString:
        """The bars as links of the SVG. Written here because a template takes three times as long for ninety of them."""
        page, name, last = escape(reverse("rollouts")), escape(self.field.label), len(self.bars) - 1
        return mark_safe("".join(render_bar_link(bar, page, name, bool(self.cleared), at == 0, at == last) for at, bar in enumerate(self.bars)))


def render_bar_link(bar: Bar, page: str, name: str, is_filtered: bool, is_first: bool, is_last: bool) -> str:
    """One bar as HTML. ``page`` and ``name``, the address of the table and the field's label, are escaped already."""
    label, x = escape(bar.label), f'x="{bar.x:.2f}"'
    return (
        f'<a href="{page}{escape(bar.url)}" class="bin{" chosen" if bar.chosen and is_filtered else ""}" data-lo="{escape(bar.lo)}"'
        f' data-hi="{escape(bar.hi)}" data-last="{"1" if is_last else ""}" tabindex="{"0" if is_first else "-1"}" aria-label="{name} {label}">'
        f'<title>{label}</title><rect class="hit" {x} y="0" width="{bar.width:.2f}" height="{HEIGHT:g}"></rect>'
        f'<rect class="fill" {x} y="{bar.top:.2f}" width="{bar.width:.2f}" height="{bar.height:.2f}"></rect></a>'
    )


def build_histogram_bars(histogram: Histogram, address: Address) -> DrawnHistogram | None:
    """None where no rollout has a value."""
    field = FIELDS[histogram.field]
    if not histogram.counts:
        return None
    count, most, edges = len(histogram.counts), max(histogram.counts), histogram.edges
    width, start = (WIDTH / count, 0.0) if count > 1 else (WIDTH / ALONE, WIDTH * (1 - 1 / ALONE) / 2)  # a value that all have is one slim bar
    lo, hi = (None, None) if histogram.chosen is None else histogram.chosen
    others = tuple(one for one in address.selection.filters if one.field != histogram.field)
    bars = []
    for at, rollouts in enumerate(histogram.counts):
        left, right = edges[at], edges[at + 1]
        last = at == count - 1
        asked = (
            Filter(histogram.field, "ge", format_exact_edge(left, field)),
            Filter(histogram.field, "le" if last else "lt", format_exact_edge(right, field)),
        )
        height = max(LEAST, HEIGHT * rollouts / most) if rollouts else 0.0
        bars.append(
            Bar(
                x=round(start + width * at, 2),
                width=round(width, 2),
                top=round(HEIGHT - height, 2),
                height=round(height, 2),
                label=f"{format_number(left)} to {format_number(right)}: {rollouts:,} rollout{'' if rollouts == 1 else 's'}",
                url=address.url(filters=(*others, *asked)),
                lo=asked[0].value,
                hi=asked[1].value,
                chosen=(lo is None or right > lo or (last and right >= lo)) and (hi is None or left < hi),
            )
        )
    cleared = address.url(filters=others) if len(others) < len(address.selection.filters) else ""
    unit = f" {field.unit}" if field.unit else ""
    return DrawnHistogram(field, bars, format_number(edges[0]), f"{format_number(edges[-1])}{unit}", describe_histogram(histogram), cleared)


def describe_histogram(histogram: Histogram) -> str:
    """The text alternative: how many, from where to where, and where most of them are."""
    total, most = sum(histogram.counts), max(range(len(histogram.counts)), key=histogram.counts.__getitem__)
    between = f"{format_number(histogram.edges[most])} to {format_number(histogram.edges[most + 1])}"
    ends = f"from {format_number(histogram.edges[0])} to {format_number(histogram.edges[-1])}"
    return f"{total:,} rollouts {ends}; most, {histogram.counts[most]:,}, from {between}"


def format_exact_edge(value: float, field: Field) -> str:
    """An edge as an address has it, without loss. No whole number lies between an edge and the next whole number above it."""
    return repr(math.ceil(value) if field.whole or value == int(value) else value)
