"""How numbers are distributed over a selection, in equal bins: one look at the index for the ends, one for all bins of all fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection

from lab.accounts.models import Team
from lab.browse.conditions import matching, span
from lab.browse.selection import Selection

HISTOGRAMS = ("reward", "length", "mean_entropy", "advantage")

# Names of our own only: {rows} is a compiled query, {name} one of HISTOGRAMS.
FINITE = "({name} > '-Infinity'::float8 AND {name} < 'Infinity'::float8)"
ENDS = f"min({{name}}) FILTER (WHERE {FINITE}), max({{name}}) FILTER (WHERE {FINITE})"
BIN = f"CASE WHEN {FINITE} THEN least(width_bucket({{name}}::float8, %s, %s, %s), %s) ELSE 0 END"


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
    return histograms(team, selection, [field], bins)[field]


def histograms(team: Team, selection: Selection, fields: Sequence[str], bins: int = 30) -> dict[str, Histogram]:
    """Those of several fields, in their order. Fields without filters of their own are of the same rollouts and are counted together."""
    if unknown := [field for field in fields if field not in HISTOGRAMS]:
        raise KeyError(unknown[0])
    filtered = {one.field for one in selection.filters}
    together = [field for field in fields if field not in filtered]
    found = dict(counted(team, selection, together, bins)) if together else {}
    for field in fields:
        if field in filtered:
            found |= counted(team, selection.without(field), [field], bins)
    return {field: Histogram(field, *found[field], span(selection.filters, field)) for field in fields}


Binned = tuple[list[float], list[int]]  # edges and counts


def counted(team: Team, selection: Selection, fields: Sequence[str], bins: int) -> dict[str, Binned]:
    found: dict[str, Binned] = {field: ([], []) for field in fields}
    try:
        rows, params = matching(team, selection).values_list(*fields).query.sql_with_params()
    except EmptyResultSet:  # no such runs, or a number no column can hold
        return found
    source = f"FROM ({rows}) AS rows({', '.join(fields)})"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(ENDS.format(name=field) for field in fields)} {source}", params)
        row = [None if value is None else float(value) for value in cursor.fetchone()]
        ends = {field: (low, high) for field, low, high in zip(fields, row[::2], row[1::2], strict=True) if low is not None and high is not None}
        if ends:
            asked = [part for low, high in ends.values() for part in (low, high if high > low else low + 1, bins, bins)]
            sets = ", ".join(f"({place})" for place in range(1, len(ends) + 1))
            columns = ", ".join(BIN.format(name=field) for field in ends)
            cursor.execute(f"SELECT {columns}, count(*) {source} GROUP BY GROUPING SETS ({sets})", [*asked, *params])
            places = cursor.fetchall()
            found |= {field: binned(*ends[field], bins, [(one[at], one[-1]) for one in places]) for at, field in enumerate(ends)}
    return found


def binned(low: float, high: float, bins: int, places: Sequence[tuple[Any, int]]) -> Binned:
    """From (bin from 1, count): bin 0 is of values that have none, None of another field's."""
    if low == high:
        return [low, high], [sum(count for place, count in places if place)]
    counts = [0] * bins
    for place, count in places:
        if place:
            counts[place - 1] += count
    return [low + (high - low) * edge / bins for edge in range(bins)] + [high], counts
