"""Metric points in chunks: about a thousand points a row, so that a chart of a million points reads a thousand rows.

The newest chunk of a metric grows in place until it is full, and says where its extremes lie (``thinned`` reads very long series from that
alone). A point carries the spool offset of the batch it came with, which is what
"everything after my cursor" means to a page. Names that begin with ``@`` are other x-axes of the same steps: ``@time`` (seconds since 1970)
and ``@tokens``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from lab.training.runs.models import Attempt, MetricChunk

CHUNK_POINTS = 1000
NAME_LENGTH = 200
AXES = ("@time", "@tokens")

# A mean over the opinions of a reward function. It is NaN where the function had none (TRL reads None and NaN as that): nothing went wrong then.
OPINIONS = re.compile(r"rewards/.+/(mean|std)|heldout/(?!entropy$|length$).+")

Points = dict[str, list[tuple[int, float]]]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One metric: ``steps`` (N,) ascending without repeats, ``values`` (N,), not always finite."""

    name: str
    steps: Integers
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)


def count_nonfinite(name: str, values: Floats) -> tuple[int, int]:
    """(points that are NaN or infinite, points at which a reward function had no opinion); a point counts as one of them only."""
    absent = int(np.isnan(values).sum()) if OPINIONS.fullmatch(name) else 0
    return values.size - int(np.isfinite(values).sum()) - absent, absent


NEWEST = """
SELECT wanted.name, newest.id, newest.chunk, newest.count, newest.last_step
FROM unnest(%s::text[]) AS wanted(name), LATERAL (
    SELECT id, chunk, count, last_step FROM runs_metricchunk
    WHERE run_id = %s AND attempt = %s AND name = wanted.name ORDER BY chunk DESC LIMIT 1
) AS newest
"""
GROW = """
UPDATE runs_metricchunk AS chunk SET
    count = chunk.count + new.count, first_step = LEAST(chunk.first_step, new.first_step), last_step = GREATEST(chunk.last_step, new.last_step),
    lo = LEAST(chunk.lo, new.lo), hi = GREATEST(chunk.hi, new.hi), last_offset = GREATEST(chunk.last_offset, %s),
    lo_step = CASE WHEN new.first_step > chunk.last_step AND new.lo_step IS NOT NULL AND chunk.lo_step IS NOT NULL
        THEN CASE WHEN new.lo < chunk.lo THEN new.lo_step ELSE chunk.lo_step END END,
    hi_step = CASE WHEN new.first_step > chunk.last_step AND new.hi_step IS NOT NULL AND chunk.hi_step IS NOT NULL
        THEN CASE WHEN new.hi > chunk.hi THEN new.hi_step ELSE chunk.hi_step END END,
    steps = chunk.steps || new.steps, values = chunk.values || new.values, offsets = chunk.offsets || new.offsets
FROM unnest(
    %s::bigint[], %s::int[], %s::int[], %s::int[], %s::float8[], %s::float8[], %s::int[], %s::int[], %s::bytea[], %s::bytea[], %s::bytea[]
) AS new(id, count, first_step, last_step, lo, hi, lo_step, hi_step, steps, values, offsets)
WHERE chunk.id = new.id
"""
ADD = """
INSERT INTO runs_metricchunk
    (run_id, attempt, last_offset, name, chunk, count, first_step, last_step, lo, hi, lo_step, hi_step, steps, values, offsets)
SELECT %s, %s, %s, * FROM unnest(
    %s::text[], %s::int[], %s::int[], %s::int[], %s::int[], %s::float8[], %s::float8[], %s::int[], %s::int[], %s::bytea[], %s::bytea[], %s::bytea[])
"""


def append_metric_points(cursor: Any, run_id: UUID, attempt: int, points: Points, offset: int = 0) -> Points:
    """Stores ``points`` inside the caller's transaction and returns those stored: of an axis, only steps it does not have yet.

    ``offset`` is where the spool stood after them.
    """
    cursor.execute(NEWEST, [list(points), run_id, attempt])
    newest = {name: (key, chunk, count, last) for name, key, chunk, count, last in cursor.fetchall()}
    stored: Points = {}
    grown, added = [], []
    for name, given in points.items():
        key, chunk, count, last = newest.get(name, (0, -1, CHUNK_POINTS, -1))
        fresh = _filter_unseen_points(given, last) if name in AXES else given
        if not fresh:
            continue
        stored[name] = fresh
        room = CHUNK_POINTS - count
        if room > 0:
            grown.append((key, *_pack_chunk_columns(fresh[:room], offset)))
        for start in range(max(0, room), len(fresh), CHUNK_POINTS):
            chunk += 1
            added.append((name, chunk, *_pack_chunk_columns(fresh[start : start + CHUNK_POINTS], offset)))
    if grown:
        cursor.execute(GROW, [offset, *(list(column) for column in zip(*grown, strict=True))])
    if added:
        cursor.execute(ADD, [run_id, attempt, offset, *(list(column) for column in zip(*added, strict=True))])
    return stored


def _filter_unseen_points(points: Iterable[tuple[int, float]], last: int) -> list[tuple[int, float]]:
    fresh = []
    for step, value in points:
        if step > last:
            fresh.append((step, value))
            last = step
    return fresh


Packed = tuple[int, int, int, float | None, float | None, int | None, int | None, bytes, bytes, bytes]


def _pack_chunk_columns(points: Sequence[tuple[int, float]], offset: int) -> Packed:
    """The columns of a chunk from its count on. Where the extremes lie is left open (None) unless every value is finite and no step repeats,
    so that a chunk that says where they lie can stand for its points.
    """
    steps = np.array([step for step, _ in points], dtype="<i4")
    values = np.array([value for _, value in points], dtype="<f8")
    offsets = np.full(len(points), offset, dtype="<i8")
    arrays = steps.tobytes(), values.tobytes(), offsets.tobytes()
    first, last, finite = int(steps.min()), int(steps.max()), np.isfinite(values)
    if finite.all():
        low, high = int(values.argmin()), int(values.argmax())
        places = (int(steps[low]), int(steps[high])) if (steps[1:] > steps[:-1]).all() else (None, None)
        return len(points), first, last, float(values[low]), float(values[high]), *places, *arrays
    some = values[finite]
    extremes = (float(some.min()), float(some.max())) if some.size else (None, None)
    return len(points), first, last, *extremes, None, None, *arrays


def read_metric_series(run_id: UUID, names: Sequence[str] | None = None, buckets: int = 0, after: int = -1) -> dict[str, Series]:
    """The metrics ``names`` (all, axes included, when None) without steps that a later attempt replayed.

    ``buckets`` > 0 thins each to the smallest and largest value of that many equal step ranges, so that no spike is lost.
    ``after``: only points that came with the spool beyond that offset.
    """
    chunks = MetricChunk.across_teams.filter(run_id=run_id, last_offset__gt=after)
    if names is not None:
        chunks = chunks.filter(name__in=list(names))
    assembled = _assemble_series(chunks, {run_id: read_attempt_cutoffs(run_id)}, after)
    return {name: compute_envelope(series, buckets) for (_, name), series in assembled.items()}


def read_metric_tail(run_id: UUID, name: str, steps: int) -> Series | None:
    """The newest points of a metric, from at least so many steps back where it has them; of a long series only its last chunks are read."""
    chunks = MetricChunk.across_teams.filter(run_id=run_id, name=name)
    newest = chunks.order_by("-attempt", "-chunk").values_list("last_step", flat=True).first()
    if newest is None:
        return None
    return _assemble_series(chunks.filter(last_step__gte=newest - 2 * steps), {run_id: read_attempt_cutoffs(run_id)}).get((run_id, name))


def read_sparkline_series(run_ids: Sequence[UUID], name: str, buckets: int, otherwise: str = "") -> dict[UUID, Series]:
    """One metric of many runs, thinned, in two queries; of runs without it the metric ``otherwise``. Runs with neither are left out."""
    limits: dict[UUID, dict[int, int]] = {}
    for run_id, number, from_step in Attempt.across_teams.filter(run_id__in=run_ids).order_by("number").values_list("run_id", "number", "from_step"):
        _add_attempt(limits.setdefault(run_id, {}), number, from_step)
    assembled = _assemble_series(MetricChunk.across_teams.filter(run_id__in=run_ids, name__in=[name, *([otherwise] if otherwise else [])]), limits)
    return {
        run_id: compute_envelope(series, buckets) for (run_id, found), series in assembled.items() if found == name or (run_id, name) not in assembled
    }


def list_metric_names(run_id: UUID) -> list[str]:
    """The names of the run's metrics, sorted; axes left out."""
    chunks = MetricChunk.across_teams.filter(run_id=run_id, chunk=0).exclude(name__startswith="@")
    return sorted(chunks.values_list("name", flat=True).distinct())


def read_attempt_cutoffs(run_id: UUID) -> dict[int, int]:
    """For each attempt that was resumed: the last of its steps that counts."""
    limits: dict[int, int] = {}
    for number, from_step in Attempt.across_teams.filter(run_id=run_id).order_by("number").values_list("number", "from_step"):
        _add_attempt(limits, number, from_step)
    return {number: last for number, last in limits.items() if last != NEVER}


NEVER = 2**31


def _add_attempt(limits: dict[int, int], number: int, from_step: int) -> None:
    for earlier, last in limits.items():
        limits[earlier] = min(last, from_step)
    limits[number] = NEVER


def _assemble_series(chunks: Any, limits: dict[UUID, dict[int, int]], after: int = -1) -> dict[tuple[UUID, str], Series]:
    parts: dict[tuple[UUID, str], list[tuple[Integers, Floats]]] = {}
    columns = ("run_id", "name", "attempt", "steps", "values") + (("offsets",) if after >= 0 else ())
    for run_id, name, attempt, raw_steps, raw_values, *raw_offsets in (
        chunks.order_by("run_id", "name", "attempt", "chunk").values_list(*columns)  # a cursor on the server would ask three times
    ):
        steps, values = np.frombuffer(raw_steps, dtype="<i4"), np.frombuffer(raw_values, dtype="<f8")
        limit = limits.get(run_id, {}).get(attempt, NEVER)
        if raw_offsets or limit != NEVER:
            keep = steps <= limit
            if raw_offsets:
                keep &= np.frombuffer(raw_offsets[0], dtype="<i8") > after
            steps, values = steps[keep], values[keep]
        parts.setdefault((run_id, name), []).append((steps, values))
    assembled = {}
    for key, pieces in parts.items():
        steps, values = newest_of_each_step(np.concatenate([s for s, _ in pieces]).astype(np.int64), np.concatenate([v for _, v in pieces]))
        if steps.size:
            assembled[key] = Series(key[1], steps, values)
    return assembled


def newest_of_each_step(steps: Integers, values: Floats) -> tuple[Integers, Floats]:
    """Sorted by step; of several values of a step the one written last."""
    if (steps[1:] > steps[:-1]).all():
        return steps, values
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    last = np.append(steps[1:] != steps[:-1], True)
    return steps[last], values[last]


def compute_envelope(series: Series, buckets: int) -> Series:
    """At most two points a bucket (its extremes), besides the first and the last point of all. NaN shows only where nothing else is."""
    steps, values = series.steps, series.values
    if buckets <= 0 or steps.size <= 2 * buckets:
        return series
    span = int(steps[-1] - steps[0]) + 1
    if span == steps.size and np.isfinite(values).all():
        chosen = _of_equal_buckets(values, -(-span // buckets))
        return Series(series.name, steps[chosen], values[chosen])
    edges = steps[0] + -(-np.arange(buckets) * span // buckets)
    starts = np.unique(np.searchsorted(steps, edges))
    starts = starts[starts < steps.size]
    bucket = np.repeat(np.arange(starts.size), np.diff(starts, append=steps.size))
    low, high = (_first_of_each(values == extreme.reduceat(values, starts)[bucket], bucket) for extreme in (np.fmin, np.fmax))
    chosen = np.unique(np.concatenate((low, high, _find_nan_buckets(bucket[low], starts), [0, steps.size - 1])))
    return Series(series.name, steps[chosen], values[chosen])


def _of_equal_buckets(values: Floats, width: int) -> Integers:
    """The places of every ``width`` values' extremes, and of the first and the last value: the usual case, without gaps, in a fifth of the time."""
    count = -(-values.size // width)
    padded = np.append(values, np.full(count * width - values.size, values[-1])).reshape(count, width)
    starts = np.arange(count) * width
    places = np.concatenate((starts + padded.argmin(axis=1), starts + padded.argmax(axis=1), [0]))
    seen = np.zeros(values.size, dtype=bool)
    seen[np.minimum(places, values.size - 1)] = seen[-1] = True
    return np.flatnonzero(seen)


def _first_of_each(marked: npt.NDArray[np.bool_], bucket: Integers) -> Integers:
    """The first marked place of each bucket that has one."""
    places = np.flatnonzero(marked)
    owners = bucket[places]
    return places[np.append(True, owners[1:] != owners[:-1])] if places.size else places


def _find_nan_buckets(seen: Integers, starts: Integers) -> Integers:
    """The starts of buckets that are not among ``seen``: all their values are NaN."""
    return np.delete(starts, seen)
