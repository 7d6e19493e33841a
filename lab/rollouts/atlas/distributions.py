"""How a number of the rollouts is spread, step by step: counted in SQL from the index that lists answer from."""

from __future__ import annotations

from typing import Any

from django.db import connection

from lab.rollouts.atlas.atlas_query import FIELDS, AtlasQuery
from lab.rollouts.atlas.columns import Ranges, build_step_columns
from lab.rollouts.atlas.sample import one_in
from lab.training.runs.models import Run

BINS = 32
FEW = 12  # values that differ; a number with no more of them gets as many bins, with its extremes in their middle
QUANTILES = (0.05, 0.5, 0.95)

# ``{column}`` is one of FIELDS' own columns. Every query reads only columns of the index rollout_listed.
WHERE = (
    "FROM trajectories_rollout WHERE run_id = %(run)s AND phase = %(phase)s AND NOT superseded AND {column} IS NOT NULL"
    " AND hashint8(id) %% %(every)s = 0"
)
ENDS_SQL = "SELECT min({column}), max({column}), count(*) " + WHERE
FEW_SQL = "SELECT DISTINCT {column} " + WHERE + " LIMIT %(most)s"
COUNTS_SQL = "SELECT width_bucket(step, %(firsts)s), width_bucket({column}::float8, %(edges)s), count(*) " + WHERE + " GROUP BY 1, 2"
LINES_SQL = (
    "SELECT width_bucket(step, %(firsts)s), avg({column}), percentile_cont(%(shares)s) WITHIN GROUP (ORDER BY {column}) " + WHERE + " GROUP BY 1"
)


def compute_field_distribution(run: Run, query: AtlasQuery) -> dict[str, Any]:
    """``edges`` (B + 1) of the value bins, ``shares`` (B, C) of each column's rollouts, ``counts`` (B, C), and the lines ``mean`` and
    ``quantiles`` (C), null where a column has no value. Without values ``columns`` is empty. ``every``: one in so many rollouts was counted.
    """
    field = FIELDS[query.field]
    words = {"field": query.field, "label": field.label, "unit": field.unit, "every": one_in(run)}
    ranges = build_step_columns(run, query.phase)
    low, high, total = query_field_rows(ENDS_SQL, field.column, run, query)[0]
    if not ranges or not total:
        return {**words, "columns": [], "edges": [], "shares": [], "counts": [], "mean": [], "quantiles": [], "total": 0}
    few = len(query_field_rows(FEW_SQL, field.column, run, query, most=FEW + 1)) <= FEW
    edges = value_edges(low, high, whole=field.column == "length", few=few)
    firsts = [first for first, _ in ranges]
    counts = [[0] * len(ranges) for _ in edges[1:]]
    for column, bin_, count in query_field_rows(COUNTS_SQL, field.column, run, query, firsts=firsts, edges=edges):
        counts[min(max(bin_, 1), len(counts)) - 1][max(column, 1) - 1] += count
    sums = [sum(row[column] for row in counts) for column in range(len(ranges))]
    shares = [[round(count / total, 5) if total else None for count, total in zip(row, sums, strict=True)] for row in counts]
    return {
        **words,
        "columns": ranges,
        "edges": edges,
        "shares": shares,
        "counts": counts,
        "total": total,
        **compute_distribution_lines(run, query, ranges),
    }


def value_edges(low: float, high: float, whole: bool, few: bool) -> list[float]:
    """Evenly spaced edges around all values, at most BINS + 2; the last bin includes its upper edge. A bin of whole numbers holds a whole
    number of them; where there are ``few`` values the first and the last lie in the middle of their bins.
    """
    if whole:
        width = max(1, -(-int(high - low + 1) // BINS))
        return [low + width * index for index in range(int(high - low) // width + 2)]
    if low == high:
        return [low - 0.5, low + 0.5]
    bins = FEW - 1 if few else BINS
    room = (high - low) / (bins - 1) / 2 if few else 0.0
    low, high = low - room, high + room
    return [low, *(low + (high - low) * index / bins for index in range(1, bins)), high]


def compute_distribution_lines(run: Run, query: AtlasQuery, ranges: Ranges) -> dict[str, Any]:
    mean: list[float | None] = [None] * len(ranges)
    quantiles: list[list[float | None]] = [[None] * len(ranges) for _ in QUANTILES]
    rows = query_field_rows(LINES_SQL, FIELDS[query.field].column, run, query, firsts=[first for first, _ in ranges], shares=list(QUANTILES))
    for column, average, values in rows:
        mean[max(column, 1) - 1] = float(average)
        for row, value in zip(quantiles, values, strict=True):
            row[max(column, 1) - 1] = value
    return {"mean": mean, "quantiles": quantiles}


def query_field_rows(sql: str, column: str, run: Run, query: AtlasQuery, **values: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("{column}", column), {"run": run.pk, "phase": query.phase, "every": one_in(run), **values})
        return cursor.fetchall()
