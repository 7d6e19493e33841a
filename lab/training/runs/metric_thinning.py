"""A run's metrics as its charts show them: the smallest and largest value of each of so many step ranges, so that no spike is lost.

A series of hundreds of chunks is not read at all: each chunk says what its extremes are and where they lie, which is an envelope already. Read
whole are only chunks that cannot stand for their points: the first and the last, those with values that are not finite, those that a resumed
attempt has replayed in part, and those of older versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import psycopg
from django.db import connection

from lab.training.runs.metrics import NEVER, Floats, Integers, Series, compute_envelope, count_nonfinite, newest_of_each_step, read_attempt_cutoffs

Rows = list[tuple[Any, ...]]

HEADS = """
SELECT name, id, attempt, count, first_step, last_step, lo, hi, lo_step, hi_step FROM runs_metricchunk
WHERE run_id = %s AND name NOT LIKE '@%%' ORDER BY name, attempt, chunk
"""
# A chunk that says where its extremes lie has no step twice, so one without gaps needs no steps. The same holds for axes, always.
POINTS = """
SELECT id, CASE WHEN lo_step IS NULL OR count <= last_step - first_step THEN steps END, values FROM runs_metricchunk WHERE id = ANY(%s)
"""
AXIS_HEADS = """
SELECT name, id, attempt, first_step, last_step, count > last_step - first_step FROM runs_metricchunk
WHERE run_id = %s AND name = ANY(%s) AND first_step <= %s ORDER BY attempt, chunk
"""
AXIS = "SELECT id, CASE WHEN count <= last_step - first_step THEN steps END, values FROM runs_metricchunk WHERE id = ANY(%s)"
SLICES = """
SELECT substring(chunk.values FROM 8 * wanted.place + 1 FOR 8)
FROM unnest(%s::bigint[], %s::int[]) WITH ORDINALITY AS wanted(id, place, number) JOIN runs_metricchunk AS chunk ON chunk.id = wanted.id
ORDER BY wanted.number
"""
TOGETHER, FEWEST = 12_000, 400  # buckets of all metrics together; but so many for each, about one for every pixel of its chart
FEW = 100  # values of a chunk that are cut out of it one by one; for more it is read whole


@dataclass(frozen=True)
class ThinnedMetrics:
    """``series`` as shown; of each, how many points there are in the database, how many of those are not finite, and at how many a reward function
    had no opinion (``metrics.count_nonfinite``; names without any left out).

    ``limits``: for each attempt that was resumed, the last of its steps that counts.
    """

    series: dict[str, Series]
    counts: dict[str, int]
    nonfinite: dict[str, int]
    abstained: dict[str, int]
    limits: dict[int, int]


class ChunkHead(NamedTuple):
    """A chunk without its points. ``limit``: the last of its attempt's steps that counts."""

    id: int
    limit: int
    points: int
    first: int
    last: int
    lo: float
    hi: float
    lo_step: int | None
    hi_step: int | None


@dataclass
class ReadPlan:
    """Which chunks of a series are read whole, and which stand for their points."""

    heads: list[ChunkHead]
    whole: list[ChunkHead] = field(default_factory=list)
    standing: list[ChunkHead] = field(default_factory=list)


def fetch_binary_rows(query: str, params: Sequence[Any]) -> Rows:
    """Rows in PostgreSQL's binary format: arrays as bytes come at twice the speed of text. Django's cursor only speaks text."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(query, params, binary=True).fetchall()


def read_thinned_metrics(run_id: UUID, buckets: int) -> ThinnedMetrics:
    """Every metric of the run, axes left out; at most about two points a bucket, and fewer buckets each where there are many metrics."""
    limits = read_attempt_cutoffs(run_id)
    heads = {name: [head_of(row, limits) for row in rows] for name, rows in groupby(fetch_binary_rows(HEADS, [run_id]), lambda row: row[0])}
    buckets = min(buckets, max(FEWEST, TOGETHER // max(1, len(heads))))
    plans = {name: plan_chunk_reads(of_name, buckets) for name, of_name in heads.items()}
    chunk_ids = [head.id for plan in plans.values() for head in plan.whole]
    points = {key: (steps, values) for key, steps, values in fetch_binary_rows(POINTS, [chunk_ids])} if chunk_ids else {}
    series: dict[str, Series] = {}
    counts, nonfinite, abstained = dict[str, int](), dict[str, int](), dict[str, int]()
    for name, plan in plans.items():
        steps, values = read_whole(plan.whole, points)
        count = len(steps) + sum(head.points for head in plan.standing)
        if not count:
            continue
        bad, absent = count_nonfinite(name, values)
        nonfinite |= {name: bad} if bad else {}
        abstained |= {name: absent} if absent else {}
        counts[name] = count
        series[name] = compute_envelope(
            merge_standing_extremes(name, steps, values, plan.standing) if plan.standing else Series(name, steps, values), buckets
        )
    return ThinnedMetrics(series, counts, nonfinite, abstained, limits)


def head_of(row: tuple[Any, ...], limits: dict[int, int]) -> ChunkHead:
    _, key, attempt, *rest = row
    return ChunkHead(key, limits.get(attempt, NEVER), *rest)


def plan_chunk_reads(heads: Iterable[ChunkHead], buckets: int) -> ReadPlan:
    """Chunks stand for their points only where there are enough of them to draw a curve by."""
    plan = ReadPlan([head for head in heads if head.first <= head.limit])
    if buckets <= 0 or len(plan.heads) < buckets // 4 or len(plan.heads) < 3:
        plan.whole = plan.heads
        return plan
    ends = {id(min(plan.heads, key=lambda head: head.first)), id(max(plan.heads, key=lambda head: min(head.last, head.limit)))}
    overlapping = find_overlapping_chunks(plan.heads)
    for head in plan.heads:
        alone = head.lo_step is not None and head.hi_step is not None and head.last <= head.limit
        (plan.standing if alone and id(head) not in ends and id(head) not in overlapping else plan.whole).append(head)
    return plan


def find_overlapping_chunks(heads: Sequence[ChunkHead]) -> set[int]:
    """The chunks that share a step with another one: a value in them may have been measured again."""
    overlapping: set[int] = set()
    furthest: ChunkHead | None = None
    for head in sorted(heads, key=lambda head: head.first):
        if furthest is not None and head.first <= min(furthest.last, furthest.limit):
            overlapping |= {id(head), id(furthest)}
        if furthest is None or min(head.last, head.limit) > min(furthest.last, furthest.limit):
            furthest = head
    return overlapping


def read_whole(heads: Sequence[ChunkHead], points: dict[int, tuple[bytes | None, bytes]]) -> tuple[Integers, Floats]:
    """The points of the chunks that count, sorted by step."""
    if not heads:
        return np.empty(0, dtype=np.int64), np.empty(0)
    steps = np.concatenate([decode_chunk_steps(head, points[head.id][0]) for head in heads])
    values = np.frombuffer(b"".join(points[head.id][1] for head in heads), dtype="<f8")
    if any(head.last > head.limit for head in heads):
        keep = steps <= np.repeat([head.limit for head in heads], [head.points for head in heads])
        steps, values = steps[keep], values[keep]
    return newest_of_each_step(steps, values)


def decode_chunk_steps(head: ChunkHead, raw: bytes | None) -> Integers:
    return np.arange(head.first, head.last + 1) if raw is None else np.frombuffer(raw, dtype="<i4").astype(np.int64)


def merge_standing_extremes(name: str, steps: Integers, values: Floats, standing: Sequence[ChunkHead]) -> Series:
    """Points that were read and the extremes of chunks that were not."""
    places = np.array([step for head in standing for step in (head.lo_step, head.hi_step)], dtype=np.int64)
    extremes = np.array([value for head in standing for value in (head.lo, head.hi)])
    return Series(name, *newest_of_each_step(np.concatenate((steps, places)), np.concatenate((values, extremes))))


def read_axes(run_id: UUID, names: Sequence[str], steps: Integers, limits: dict[int, int]) -> dict[str, list[float | None]]:
    """The axes ``names`` at ``steps`` (ascending), None where one has none. ``limits`` as in ThinnedMetrics. Three queries at most."""
    axes = {name: np.full(len(steps), np.nan) for name in names}
    few: list[tuple[Floats, int, int, int, int]] = []
    many: list[tuple[Floats, int, int, int, int]] = []
    heads = fetch_binary_rows(AXIS_HEADS, [run_id, [f"@{name}" for name in names], int(steps[-1])]) if len(steps) else []
    for name, key, attempt, first, last, gapless in heads:
        start, end = np.searchsorted(steps, (first, min(last, limits.get(attempt, NEVER)) + 1)).tolist()
        if start < end:
            (few if gapless and end - start <= FEW else many).append((axes[name.removeprefix("@")], key, first, start, end))
    # Only what was measured again at a step of an earlier attempt is in two chunks; it does not matter which of the two moments is shown.
    if few:
        keys, places = zip(*((key, offset) for _, key, first, start, end in few for offset in (steps[start:end] - first).tolist()), strict=True)
        values = np.frombuffer(b"".join(row[0] for row in fetch_binary_rows(SLICES, [list(keys), list(places)])), dtype="<f8")
        for axis, _, _, start, end in few:
            axis[start:end], values = values[: end - start], values[end - start :]
    arrays = {key: rest for key, *rest in fetch_binary_rows(AXIS, [[key for _, key, *_ in many]])} if many else {}
    for axis, key, first, start, end in many:
        raw_steps, raw_values = arrays[key]
        asked_steps, values = steps[start:end], np.frombuffer(raw_values, dtype="<f8")
        if raw_steps is None:
            axis[start:end] = values[asked_steps - first]
        else:
            known = np.frombuffer(raw_steps, dtype="<i4")
            at = np.minimum(np.searchsorted(known, asked_steps), len(known) - 1)
            axis[start:end] = np.where(known[at] == asked_steps, values[at], axis[start:end])
    return {name: write_axis(axis) for name, axis in axes.items()}


def write_axis(axis: Floats) -> list[float | None]:
    return [None if value != value else value for value in axis.tolist()] if np.isnan(axis).any() else axis.tolist()
