"""Which rollouts a map reads: all of them while they are few, else equally many of each column, the same ones every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection

from lab.rollouts.atlas.columns import Ranges, assign_step_columns
from lab.training.runs.models import Run

MOST_ROLLOUTS = 4000
MOST_TOKENS = 2_000_000
SCANNED = 200_000  # rows of the index that are looked at; of more rollouts a share is, chosen by the hash of their ids

# Answered by the index rollout_listed alone.
ROWS_SQL = """
SELECT id, step, coalesce(length, 0) FROM trajectories_rollout
WHERE run_id = %(run)s AND phase = %(phase)s AND NOT superseded AND step BETWEEN %(first)s AND %(last)s AND hashint8(id) %% %(every)s = 0
"""


@dataclass(frozen=True)
class RolloutSample:
    """``ids`` and ``columns`` (N,) of the rollouts to read; ``total`` how many there are, about that where ``exact`` is False."""

    ids: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    total: int
    exact: bool


def draw_rollout_sample(run: Run, phase: str, ranges: Ranges, most: int = MOST_ROLLOUTS) -> RolloutSample:
    every = one_in(run) if len(ranges) > 1 else 1  # one column is small
    parameters: dict[str, Any] = {"run": run.pk, "phase": phase, "first": ranges[0][0], "last": ranges[-1][1], "every": every}
    with connection.cursor() as cursor:
        cursor.execute(ROWS_SQL, parameters)
        rows = np.array(cursor.fetchall(), dtype=np.int64).reshape(-1, 3)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    ids, steps, lengths = rows.T
    where = assign_step_columns(ranges, steps)
    if len(ids):
        most = min(most, max(1, int(MOST_TOKENS / max(1.0, float(lengths.mean())))))
    kept = sample_columns_evenly(where, most)
    return RolloutSample(ids[kept], where[kept], len(ids) * every, every == 1)


def one_in(run: Run) -> int:
    """A map over the whole run looks at one in so many of its rollouts."""
    return max(1, run.rollouts // SCANNED)


def sample_columns_evenly(columns: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Indices of at most ``most`` of the rows (N,), about equally many of each column: columns with few rows keep all of them."""
    if len(columns) <= most:
        return np.arange(len(columns))
    counts = np.bincount(columns)
    low, high = 0, most
    while low < high:  # the largest quota that fits
        quota = (low + high + 1) // 2
        low, high = (quota, high) if int(np.minimum(counts, quota).sum()) <= most else (low, quota - 1)
    shuffled = np.random.default_rng(0).permutation(len(columns))
    order = shuffled[np.argsort(columns[shuffled], kind="stable")]
    starts = np.cumsum(counts) - counts
    rank = np.arange(len(order)) - starts[columns[order]]
    return np.sort(order[rank < low])
