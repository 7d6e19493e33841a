"""Which rollouts were sampled together: the advantages of a group may depend on all of its generation batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from lab.rollouts.trajectories.models import Rollout
from lab.training.runs.models import Run


def select_trained_rollouts(run: Run) -> QuerySet[Rollout]:
    """What was trained on, without the steps that a resumed attempt replayed."""
    return Rollout.objects.filter(run=run, phase="train", superseded=False)


def compute_batch_steps(training: Mapping[str, Any], step: int) -> tuple[int, int]:
    """The first and the last optimiser step that the generation batches of ``step`` lead to: a batch may be split over several steps."""
    accumulated = int(training.get("gradient_accumulation_steps") or 1)
    slices = int(training.get("steps_per_generation") or accumulated)
    if slices <= accumulated:
        return step, step
    every = slices * int(training.get("num_iterations") or 1)  # micro-batches for which one generation batch is used
    first = (step - 1) * accumulated // every * every
    return first // accumulated + 1, (first + slices - 1) // accumulated + 1


def select_batch_rollouts(run: Run, step: int) -> QuerySet[Rollout]:
    """All rollouts of the generation batches of ``step``, as they were written."""
    first, last = compute_batch_steps(run.spec.get("training") or {}, step)
    return select_trained_rollouts(run).filter(step__range=(first, last)).order_by("spool_end", "group", "sample")
