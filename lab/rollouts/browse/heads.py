"""The headers of the table's columns: what a column is called, whether it is sorted by, and where a click on it leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote_plus

from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from lab.rollouts.browse.address import Address
from lab.rollouts.browse.columns import Column
from lab.rollouts.browse.fields import COMPONENT

ANY = "~"  # in the place of an order; what people write cannot stand behind "sort=", whose equals sign would be encoded
UNNAMED = "(no name)"  # a reward function may be called by spaces alone
ARROWS = {"descending": "↓", "ascending": "↑"}


@dataclass(frozen=True)
class Head:
    """A column's header: a click sorts by it, numbers with the largest first, and the other way round the second time."""

    column: Column
    url: str = ""
    direction: str = ""


def build_column_heads(columns: Iterable[Column], address: Address) -> list[Head]:
    before, after = address.url(sort=ANY).split(f"sort={ANY}", 1)  # written once: only what is sorted by differs between their addresses
    return [build_column_head(column, address.selection.sort, (before, after)) for column in columns]


def build_column_head(column: Column, sort: str, around: tuple[str, str]) -> Head:
    """``around``: what stands in the address before and after the order."""
    if not column.sortable:
        return Head(column)
    before, after = around
    name = quote_plus(column.name)
    if sort.removeprefix("-") != column.name:
        return Head(column, f"{before}sort=-{name}{after}")
    descending = sort.startswith("-")
    return Head(column, f"{before}sort={'' if descending else '-'}{name}{after}", "descending" if descending else "ascending")


def render_column_heads(heads: Iterable[Head], pins: Mapping[str, str]) -> SafeString:
    """The cells of the table's first row. Written here, as its rows are: a template takes several times as long."""
    page = escape(reverse("rollouts"))
    return mark_safe("".join(render_head_cell(head, place, page, pins.get(head.column.name, "")) for place, head in enumerate(heads, 1)))


def render_head_cell(head: Head, place: int, page: str, pin: str) -> str:
    """One cell as HTML. ``page``, the address of the table, is escaped already."""
    column, label = head.column, f"<bdi>{escape(head.column.label.strip() or UNNAMED)}</bdi>"
    pin += " of-reward" if column.name.startswith(COMPONENT) else ""  # a name that people write: it may be long, and parted anywhere
    title = f' title="{escape(column.help)}"' if column.help else ""
    if not head.url:
        return f'<th scope="col" class="{column.kind}{pin}"{title}>{label}</th>'
    order = f' aria-sort="{head.direction}"' if head.direction else ""
    arrow = f'<span aria-hidden="true"> {ARROWS[head.direction]}</span>' if head.direction else ""
    where = escape(head.url)
    return (
        f'<th scope="col" class="{column.kind}{pin}"{title}{order}><a id="sort-{place}" href="{where}" hx-get="{page}{where}">{label}{arrow}</a></th>'
    )
