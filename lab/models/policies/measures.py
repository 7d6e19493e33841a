"""What a run had measured when a checkpoint was written: the value at its step, or the last one before."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from django.db import connection

from lab.training.runs.curve_values import find_value_by_step
from lab.training.runs.metrics import newest_of_each_step
from lab.training.runs.models import Checkpoint

SHOWN = {"reward": "reward", "heldout": "heldout/reward", "entropy": "entropy"}

# The newest attempt up to the checkpoint's that has the metric by then: a resumed attempt replaces what came after the step it went on from.
CHUNKS = """
SELECT asked.id, asked.step, metric.name, chunk.steps, chunk."values"
FROM unnest(%s::bigint[], %s::uuid[], %s::int[], %s::int[]) AS asked(id, run, attempt, step)
CROSS JOIN unnest(%s::text[]) AS metric(name)
CROSS JOIN LATERAL (
    SELECT steps, "values" FROM runs_metricchunk
    WHERE run_id = asked.run AND name = metric.name AND attempt <= asked.attempt AND first_step <= asked.step
    ORDER BY attempt DESC, chunk DESC LIMIT 1
) AS chunk
"""


@dataclass(frozen=True)
class MeasuredValue:
    value: float
    step: int


def at_steps(checkpoints: Sequence[Checkpoint], names: Collection[str]) -> dict[int, dict[str, MeasuredValue]]:
    """Checkpoint → metric → what was measured by then. Metrics without a finite value are missing. One query."""
    measured: dict[int, dict[str, MeasuredValue]] = {checkpoint.pk: {} for checkpoint in checkpoints}
    if not checkpoints or not names:
        return measured
    columns = [[getattr(checkpoint, name) for checkpoint in checkpoints] for name in ("pk", "run_id", "attempt", "step")]
    with connection.cursor() as cursor:
        cursor.execute(CHUNKS, [*columns, list(names)])
        for pk, step, name, raw_steps, raw_values in cursor.fetchall():
            steps, values = newest_of_each_step(np.frombuffer(raw_steps, "<i4").astype(np.int64), np.frombuffer(raw_values, "<f8"))
            if found := find_value_by_step(steps, values, step):
                measured[pk][name] = MeasuredValue(*found)
    return measured


def names_of(checkpoint: Checkpoint) -> list[str]:
    """The metrics of its run, axes left out."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT name FROM runs_metricchunk WHERE run_id = %s AND chunk = 0 AND name NOT LIKE '@%%'", [checkpoint.run_id])
        return sorted(row[0] for row in cursor.fetchall())
