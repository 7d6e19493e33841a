"""How long each attempt of a run took: from its start to its end, or to its last report where that is all that is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from django.utils import timezone

from lab.training.runs.models import Attempt, MetricChunk, Run


def measure_attempt_seconds(run: Run, attempts: Sequence[Attempt]) -> dict[int, float | None]:
    """Attempt → seconds; None for one that ended before it reported anything."""
    chunks = MetricChunk.objects.filter(run=run, name="@time").order_by("attempt", "-chunk").distinct("attempt")
    ends = {attempt: float(np.frombuffer(values, "<f8")[-1]) for attempt, values in chunks.values_list("attempt", "values")}
    if attempts and run.is_active:
        ends[attempts[-1].number] = timezone.now().timestamp()
    elif attempts and run.finished_at:
        ends[attempts[-1].number] = run.finished_at.timestamp()
    return {one.number: max(0.0, ends[one.number] - one.started_at.timestamp()) if one.number in ends else None for one in attempts}
