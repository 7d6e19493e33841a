"""The rows of the table as HTML. Written here and by no template, which would take several times as long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from lab.rollouts.browse.cells import TableRow
from lab.rollouts.browse.columns import Column

SUPERSEDED = ' class="superseded"'
ROOMY = ("prompt", "completion", "run", "tags")  # columns that the style sheet gives a width


def render_table_body(together: Iterable[Sequence[TableRow]], columns: Sequence[Column], pins: Mapping[str, str]) -> SafeString:
    """The rows of the table as its bodies: rows that stand together have one of their own, in which those after the first are folded. ``pins``:
    the classes of pinned columns by name, and that of the boxes before them without one.
    """
    bodies: list[tuple[str, Sequence[TableRow]]] = []
    single: list[TableRow] = []
    for rows in together:
        if len(rows) == 1:
            single += rows
            continue
        bodies += [("", single), (' class="same-rows"', rows)]
        single = []
    bodies.append(("", single))
    return SafeString("".join("\n".join([f"<tbody{kind}>", *render_table_rows(rows, columns, pins), "</tbody>"]) for kind, rows in bodies if rows))


def render_table_rows(rows: Iterable[TableRow], columns: Sequence[Column], pins: Mapping[str, str]) -> Iterator[SafeString]:
    """Each row of the table; the completion is its header."""
    frames = [
        (make_plain(render_cell_start(column, pins.get(column.name, ""))), column.cell, "</th>" if column.name == "completion" else "</td>")
        for column in columns
    ]
    for row in rows:
        yield SafeString(make_plain(row_start(row, pins.get("", ""))) + "".join([start + cell(row) + end for start, cell, end in frames]) + "</tr>")


def make_plain(text: SafeString) -> str:
    """The same as a plain string: one that is safe looks for safety with every addition, which for a page of cells takes as long as to draw them."""
    return "".join([text])


def row_start(row: TableRow, pin: str) -> SafeString:
    rollout = row.rollout
    more = SUPERSEDED if rollout.superseded else ""
    box = f'<td class="{pin.strip()}">' if pin else "<td>"
    return mark_safe(  # numbers, and an escaped address
        f'<tr data-row="{rollout.pk:d}" data-href="{row.url}" tabindex="-1"{more}>{box}<input type="checkbox" name="id"'
        f' value="{rollout.pk:d}" form="tag-form" aria-label="Tick step {rollout.step:d}, group {rollout.group:d}, sample {rollout.sample:d}"></td>'
    )


def render_cell_start(column: Column, pin: str) -> SafeString:
    """With the column's name where a phone, whose rows are blocks, has to say it in the cell."""
    if column.name == "completion":
        return format_html('<th scope="row" class="{} c-{}{}">', column.kind, column.name, pin)
    if column.name in ROOMY:
        return format_html('<td class="{} c-{}{}">', column.kind, column.name, pin)
    return format_html('<td class="{}{}" data-label="{}">', column.kind, pin, column.label)
