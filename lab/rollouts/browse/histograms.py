"""How numbers are distributed over a selection, in equal bins: one look at the index for all fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import psycopg
from django.core.exceptions import EmptyResultSet
from django.db import connection

from lab.rollouts.browse.conditions import compute_filter_range, filter_matching_rollouts
from lab.rollouts.browse.selection import Selection
from lab.teams.accounts.models import Team

Floats = npt.NDArray[np.float64]
HISTOGRAMS = ("reward", "length", "mean_entropy", "advantage")

# Names of our own only, one of HISTOGRAMS. Arrays have the form of array_send: a header of 20 bytes, then each value after its length.
VALUES = "array_agg(coalesce({name}::float8, 'NaN'))"
ARRAY_HEADER, ARRAY_ITEM = 20, np.dtype([("length", ">i4"), ("value", ">f8")])


@dataclass(frozen=True)
class Histogram:
    """``edges`` (bins + 1) and ``counts`` (bins); a value on an edge is in the bin above it, the largest in the last. No bins: no values.

    ``chosen`` is what the selection's own filters of the field leave, None where they leave it open.
    """

    field: str
    edges: list[float]
    counts: list[int]
    chosen: tuple[float | None, float | None]


def compute_field_histogram(team: Team, selection: Selection, field: str, bins: int = 30) -> Histogram:
    """Of all finite values that the selection's other filters leave; a regular expression is not applied.

    Raises KeyError for a field that is not one of HISTOGRAMS.
    """
    return compute_field_histograms(team, selection, [field], bins)[field]


def compute_field_histograms(team: Team, selection: Selection, fields: Sequence[str], bins: int = 30) -> dict[str, Histogram]:
    """Those of several fields, in their order. Fields without filters of their own are of the same rollouts and are counted together."""
    if unknown := [field for field in fields if field not in HISTOGRAMS]:
        raise KeyError(unknown[0])
    filtered = {one.field for one in selection.filters}
    together = [field for field in fields if field not in filtered]
    binned = dict(count_field_bins(team, selection, together, bins)) if together else {}
    for field in fields:
        if field in filtered:
            binned |= count_field_bins(team, selection.without(field), [field], bins)
    return {field: Histogram(field, *binned[field], compute_filter_range(selection.filters, field)) for field in fields}


Binned = tuple[list[float], list[int]]  # edges and counts


def count_field_bins(team: Team, selection: Selection, fields: Sequence[str], bins: int) -> dict[str, Binned]:
    return {field: bin_field_values(values, bins) for field, values in zip(fields, fetch_field_values(team, selection, fields), strict=True)}


def fetch_field_values(team: Team, selection: Selection, fields: Sequence[str]) -> list[Floats]:
    """The finite values of each field, in one look at the index: numpy bins them in half the time of a second one."""
    try:
        rows, params = filter_matching_rollouts(team, selection).values_list(*fields).query.sql_with_params()
    except EmptyResultSet:  # no such runs, or a number no column can hold
        return [np.empty(0) for _ in fields]
    columns, source = ", ".join(VALUES.format(name=field) for field in fields), f"FROM ({rows}) AS rows({', '.join(fields)})"
    connection.ensure_connection()
    asked = psycopg.ClientCursor(connection.connection).mogrify(f"SELECT {columns} {source}", params)
    with connection.wrap_database_errors, psycopg.RawCursor(connection.connection) as cursor:
        cursor.execute(asked, binary=True)
        assert cursor.pgresult is not None
        packed = [cursor.pgresult.get_value(0, place) for place in range(len(fields))]
    return [unpack_float_array(one) for one in packed]


def unpack_float_array(packed: bytes | None) -> Floats:
    """The finite values of an array of float8 without nulls; of no rows there is no array."""
    values = np.frombuffer(packed, ARRAY_ITEM, offset=ARRAY_HEADER)["value"].astype(np.float64) if packed else np.empty(0)
    return values[np.isfinite(values)]


def bin_field_values(values: Floats, bins: int) -> Binned:
    if not values.size:
        return [], []
    low, high = float(values.min()), float(values.max())
    if low == high:
        return [low, high], [len(values)]
    edges = [low + (high - low) * edge / bins for edge in range(bins)] + [high]
    places = np.minimum(np.searchsorted(edges, values, side="right") - 1, bins - 1)
    return edges, np.bincount(places, minlength=bins).tolist()
