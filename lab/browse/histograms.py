"""How a number is distributed over a selection, in equal bins."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import EmptyResultSet
from django.db import connection

from lab.accounts.models import Team
from lab.browse.conditions import matching, span
from lab.browse.selection import Selection

HISTOGRAMS = ("reward", "length", "mean_entropy", "advantage")

SQL = """
WITH found AS MATERIALIZED (SELECT value::float8 FROM ({rows}) AS rows(value) WHERE value::float8 > '-Infinity' AND value::float8 < 'Infinity'),
    ends AS (SELECT min(value) AS low, max(value) AS high FROM found)
SELECT low, high, CASE WHEN low < high THEN least(width_bucket(value, low, high, %s), %s) ELSE 1 END AS bin, count(*)
FROM found, ends GROUP BY 1, 2, 3
"""


@dataclass(frozen=True)
class Histogram:
    """``edges`` (bins + 1) and ``counts`` (bins); a value on an edge is in the bin above it, the largest in the last. No bins: no values.

    ``chosen`` is what the selection's own filters of the field leave, None where they leave it open.
    """

    field: str
    edges: list[float]
    counts: list[int]
    chosen: tuple[float | None, float | None]


def histogram(team: Team, selection: Selection, field: str, bins: int = 30) -> Histogram:
    """Of all finite values that the selection's other filters leave; a regular expression is not applied.

    Raises KeyError for a field that is not one of HISTOGRAMS.
    """
    if field not in HISTOGRAMS:
        raise KeyError(field)
    chosen = span(selection.filters, field)
    try:
        sql, params = matching(team, selection.without(field)).values_list(field).query.sql_with_params()
    except EmptyResultSet:  # no such runs, or a number no column can hold
        return Histogram(field, [], [], chosen)
    with connection.cursor() as cursor:
        cursor.execute(SQL.format(rows=sql), [*params, bins, bins])
        found = cursor.fetchall()
    if not found:
        return Histogram(field, [], [], chosen)
    low, high = float(found[0][0]), float(found[0][1])
    if low == high:
        return Histogram(field, [low, high], [found[0][3]], chosen)
    counts = [0] * bins
    for _, _, place, count in found:
        counts[place - 1] += count
    return Histogram(field, [low + (high - low) * edge / bins for edge in range(bins)] + [high], counts, chosen)
