"""Histograms as bars of an SVG: where each stands, what it says, and the address a click on it leads to."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
class Drawn:
    field: Field
    bars: list[Bar]
    low: str
    high: str
    label: str
    cleared: str  # the address without a choice in this histogram; "" where there is none


def build_histogram_bars(found: Histogram, address: Address) -> Drawn | None:
    """None where no rollout has a value."""
    field = FIELDS[found.field]
    if not found.counts:
        return None
    count, most, edges = len(found.counts), max(found.counts), found.edges
    width, start = (WIDTH / count, 0.0) if count > 1 else (WIDTH / ALONE, WIDTH * (1 - 1 / ALONE) / 2)  # a value that all have is one slim bar
    lo, hi = (None, None) if found.chosen is None else found.chosen
    others = tuple(one for one in address.selection.filters if one.field != found.field)
    bars = []
    for at, rollouts in enumerate(found.counts):
        left, right = edges[at], edges[at + 1]
        last = at == count - 1
        asked = (
            Filter(found.field, "ge", format_exact_edge(left, field)),
            Filter(found.field, "le" if last else "lt", format_exact_edge(right, field)),
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
    return Drawn(field, bars, format_number(edges[0]), f"{format_number(edges[-1])}{unit}", describe_histogram(found), cleared)


def describe_histogram(found: Histogram) -> str:
    """The text alternative: how many, from where to where, and where most of them are."""
    total, most = sum(found.counts), max(range(len(found.counts)), key=found.counts.__getitem__)
    between = f"{format_number(found.edges[most])} to {format_number(found.edges[most + 1])}"
    return (
        f"{total:,} rollouts from {format_number(found.edges[0])} to {format_number(found.edges[-1])}; most, {found.counts[most]:,}, from {between}"
    )


def format_exact_edge(value: float, field: Field) -> str:
    """An edge as an address has it, without loss. No whole number lies between an edge and the next whole number above it."""
    return repr(math.ceil(value) if field.whole or value == int(value) else value)
