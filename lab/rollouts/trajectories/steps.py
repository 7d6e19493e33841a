"""At which steps of a run there are rollouts, without reading the rollouts: every question is a few probes of the index (run, step, …)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import Max, QuerySet

from lab.rollouts.trajectories.models import Rollout
from lab.training.runs import metrics
from lab.training.runs.models import MetricChunk, Run

WALK = 2000  # steps that are listed one by one; a longer run gets a slider over the whole range
PHASES = {
    "grpo": ("train", "heldout"),
    "rloo": ("train", "heldout"),
    "dpo": ("sampled", "heldout"),
    "kto": ("sampled", "heldout"),
    "orpo": ("sampled", "heldout"),
    "cpo": ("sampled", "heldout"),
    "online-dpo": ("train", "heldout"),
    "gkd": ("train", "heldout"),
    "reward": ("sampled",),
    "sft": ("heldout",),
    "procedure": ("train", "heldout"),
}
PHASE_LABELS = {"train": "Training", "heldout": "Held-out", "sampled": "Sampled pairs", "play": "Playground"}

# Jumps from one step to the next, so its cost is the number of steps and not of rollouts.
WALK_SQL = """
WITH RECURSIVE walk(step) AS (
  (SELECT step FROM trajectories_rollout WHERE run_id = %(run)s AND phase = %(phase)s AND (%(tries)s OR NOT superseded) ORDER BY step LIMIT 1)
  UNION ALL
  SELECT (SELECT r.step FROM trajectories_rollout r WHERE r.run_id = %(run)s AND r.phase = %(phase)s AND (%(tries)s OR NOT r.superseded)
          AND r.step > walk.step ORDER BY r.step LIMIT 1)
  FROM walk WHERE walk.step IS NOT NULL
) SELECT step FROM walk WHERE step IS NOT NULL LIMIT %(limit)s
"""


@dataclass(frozen=True)
class Steps:
    """Where the chosen step lies among those with rollouts of its phase. ``listed`` is empty when there are too many to list."""

    step: int | None
    first: int | None
    last: int | None
    before: int | None
    after: int | None
    listed: Sequence[int]


def rollouts_of(run: Run, phase: str, tries: bool) -> QuerySet[Rollout]:
    rollouts = Rollout.objects.filter(run=run, phase=phase)
    return rollouts if tries else rollouts.filter(superseded=False)


def list_rollout_steps(run: Run, phase: str, tries: bool) -> list[int]:
    """The steps with rollouts of a phase, ascending; empty when there are more than WALK."""
    if phase == "heldout":  # the rollouts between two measurements are not walked over; what was measured says where they are
        names = [name for name in metrics.list_metric_names(run.pk) if name.startswith("heldout/")][:1]
        series = metrics.read_metric_series(run.pk, names) if names else {}
        return [int(step) for one in series.values() for step in one.steps][:WALK]
    with connection.cursor() as cursor:
        cursor.execute(WALK_SQL, {"run": run.pk, "phase": phase, "tries": tries, "limit": WALK + 1})
        steps = [row[0] for row in cursor.fetchall()]
    return steps if len(steps) <= WALK else []


def locate_step(run: Run, phase: str, wanted: int | None, tries: bool = False) -> Steps:
    """The step nearest below ``wanted`` that has rollouts (else nearest above), or the newest one for None."""
    rows = rollouts_of(run, phase, tries)
    ascending, descending = rows.order_by("step").values_list("step", flat=True), rows.order_by("-step").values_list("step", flat=True)
    last = descending.first()
    if last is None:
        return Steps(None, None, None, None, None, [])
    step = last if wanted is None else descending.filter(step__lte=wanted).first()
    if step is None:
        step = ascending.first()
    assert step is not None
    known = list_rollout_steps(run, phase, tries)
    first = known[0] if known else ascending.first()
    if known and step in known:
        index = known.index(step)
        before = known[index - 1] if index else None
        after = known[index + 1] if index + 1 < len(known) else None
    else:
        before, after = descending.filter(step__lt=step).first(), ascending.filter(step__gt=step).first()
    return Steps(step, first, last, before, after, known)


def list_offered_phases(run: Run, chosen: str = "") -> list[str]:
    """The phases to offer: those this kind of run samples in, and the chosen one whatever it is."""
    expected = PHASES.get(run.trainer, tuple(PHASE_LABELS))
    return [phase for phase in PHASE_LABELS if phase in expected or phase == chosen]


def resolve_phase_and_step(run: Run, phase: str, wanted: int | None, tries: bool = False) -> tuple[str, Steps]:
    """The phase and the step in it (``locate_step``): the asked phase, else the first this kind of run has rollouts of, else the first."""
    offered = [phase] if phase else list_offered_phases(run)
    for one in offered:
        steps = locate_step(run, one, wanted, tries)
        if steps.step is not None:
            return one, steps
    return offered[0], steps


def list_replayed_ranges(run: Run) -> list[tuple[int, int, int]]:
    """(attempt, first step, last step) of what each resumed attempt did again."""
    attempts = list(run.attempts.values_list("number", "from_step"))
    if len(attempts) < 2:
        return []
    reached = MetricChunk.objects.filter(run=run, name="@time").values_list("attempt").annotate(last=Max("last_step"))
    last = dict(reached.values_list("attempt", "last"))
    ranges = []
    for number, from_step in attempts:
        furthest = max((step for attempt, step in last.items() if attempt < number), default=0)
        if number > 1 and furthest > from_step:
            ranges.append((number, from_step + 1, furthest))
    return ranges
