"""The headers of the table's columns: what a column is called, whether it is sorted by, and where a click on it leads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from lab.rollouts.browse.address import Address
from lab.rollouts.browse.columns import Column

ARROWS = {"descending": "↓", "ascending": "↑"}


@dataclass(frozen=True)
class Head:
    """A column's header: a click sorts by it, numbers with the largest first, and the other way round the second time."""

    column: Column
    seen: bool
    url: str = ""
    direction: str = ""


def build_column_head(column: Column, address: Address) -> Head:
    sort = address.selection.sort
    seen = address.choice.sees(column)
    if not column.sortable:
        return Head(column, seen)
    if sort.removeprefix("-") != column.name:
        return Head(column, seen, address.url(sort=f"-{column.name}"))
    descending = sort.startswith("-")
    return Head(column, seen, address.url(sort=column.name if descending else f"-{column.name}"), "descending" if descending else "ascending")


def render_column_heads(heads: Iterable[Head]) -> SafeString:
    """The cells of the table's first row, of the columns that are seen. Written here, as its rows are: a template takes several times as long."""
    page = escape(reverse("rollouts"))
    return mark_safe("".join(render_head_cell(head, place, page) for place, head in enumerate(heads, 1) if head.seen))


def render_head_cell(head: Head, place: int, page: str) -> str:
    """One cell as HTML. ``page``, the address of the table, is escaped already."""
    column, label = head.column, f"<bdi>{escape(head.column.label)}</bdi>"
    title = f' title="{escape(column.help)}"' if column.help else ""
    if not head.url:
        return f'<th scope="col" class="{column.kind}"{title}>{label}</th>'
    order = f' aria-sort="{head.direction}"' if head.direction else ""
    arrow = f'<span aria-hidden="true"> {ARROWS[head.direction]}</span>' if head.direction else ""
    where = escape(head.url)
    return f'<th scope="col" class="{column.kind}"{title}{order}><a id="sort-{place}" href="{where}" hx-get="{page}{where}">{label}{arrow}</a></th>'
