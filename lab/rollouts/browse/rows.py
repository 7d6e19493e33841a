"""The rows of the table as HTML. Written here and by no template, which would take several times as long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from lab.rollouts.browse.cells import TableRow
from lab.rollouts.browse.columns import Column

SUPERSEDED = ' class="superseded"'
ROOMY = ("prompt", "completion", "run", "tags")  # columns that the style sheet gives a width


def render_table_body(together: Iterable[Sequence[TableRow]], columns: Sequence[Column]) -> SafeString:
    """The rows of the table as its bodies: rows that stand together have one of their own, in which those after the first are folded."""
    bodies: list[tuple[str, Sequence[TableRow]]] = []
    single: list[TableRow] = []
    for rows in together:
        if len(rows) == 1:
            single += rows
            continue
        bodies += [("", single), (' class="same-rows"', rows)]
        single = []
    bodies.append(("", single))
    return SafeString("".join("\n".join([f"<tbody{kind}>", *render_table_rows(rows, columns), "</tbody>"]) for kind, rows in bodies if rows))


def render_table_rows(rows: Iterable[TableRow], columns: Sequence[Column]) -> Iterator[SafeString]:
    """Each row of the table; the completion is its header."""
    frames = [(make_plain(render_cell_start(column)), column.cell, "</th>" if column.name == "completion" else "</td>") for column in columns]
    for row in rows:
        yield SafeString(make_plain(row_start(row)) + "".join([start + cell(row) + end for start, cell, end in frames]) + "</tr>")


def make_plain(text: SafeString) -> str:
    """The same as a plain string: one that is safe looks for safety with every addition, which for a page of cells takes as long as to draw them."""
    return "".join([text])


def row_start(row: TableRow) -> SafeString:
    rollout = row.rollout
    more = SUPERSEDED if rollout.superseded else ""
    return mark_safe(  # numbers, and an escaped address
        f'<tr data-row="{rollout.pk:d}" data-href="{row.url}" tabindex="-1"{more}><td><input type="checkbox" name="id"'
        f' value="{rollout.pk:d}" form="tag-form" aria-label="Tick step {rollout.step:d}, group {rollout.group:d}, sample {rollout.sample:d}"></td>'
    )


def render_cell_start(column: Column) -> SafeString:
    """With the column's name where a phone, whose rows are blocks, has to say it in the cell."""
    if column.name == "completion":
        return format_html('<th scope="row" class="{} c-{}">', column.kind, column.name)
    if column.name in ROOMY:
        return format_html('<td class="{} c-{}">', column.kind, column.name)
    return format_html('<td class="{}" data-label="{}">', column.kind, column.label)
