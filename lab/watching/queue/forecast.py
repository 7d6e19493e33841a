"""When the runs of the queues start and end: from the pace of finished runs like them, on the workers there are, with what these train now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from uuid import UUID

from lab.training.runs import hold_reasons, live
from lab.training.runs.models import ACTIVE, HEAVY_WITH_PARENT, OPEN, WAITING, Run, Status
from lab.training.runs.process_counts import ONE_PROCESS, fetch_run_sizes
from lab.training.runs.queue_order import order_claims, order_waiting_runs
from lab.training.runs.wait_reasons import WILL_NOT_FINISH, QueueState
from lab.training.workers.models import Worker
from lab.watching.queue.schedule import Desk, Forecast, WaitingRun, schedule_runs
from lab.watching.usage.similar_runs import MANNER_COLUMNS, find_manner_paces, list_run_manners

MOST = 500  # runs that are looked ahead, over all queues
TOO_FAR = Forecast(None, None, "unknown: too far back in the queue")


@dataclass(frozen=True)
class QueueForecast:
    """``ends``: seconds from now until a run in training ends, None where that is not known. ``state``: what it was made from, of all teams."""

    waiting: Mapping[UUID, Forecast]
    ends: Mapping[UUID, float | None]
    state: QueueState


def forecast_queues() -> QueueForecast:
    """Of all teams: each waits for the runs of others. Runs that a quota holds, or whose first stage has failed, start nowhere."""
    found = Run.across_teams.filter(status__in=OPEN, outside=False).select_related("parent").defer(*HEAVY_WITH_PARENT)
    open_runs, workers = list(found), list(Worker.objects.taking_runs())
    active, waiting = [run for run in open_runs if run.status in ACTIVE], [run for run in open_runs if run.status in WAITING]
    held = hold_reasons.find_held_reasons(waiting)
    free = [run for run in waiting if run.pk not in held and not (run.parent and run.parent.status in WILL_NOT_FINISH)]
    ordered = [run for runs in order_waiting_runs(free).values() for run in runs]
    near = ordered[:MOST]
    ends: dict[UUID, float | None] = {run.pk: live.estimate_eta_seconds(run) for run in active}
    seconds = estimate_seconds([run for run in (*near, *active) if ends.get(run.pk) is None])
    ends |= {run.pk: seconds.get(run.pk) for run in active if ends[run.pk] is None}
    sizes = fetch_run_sizes([run.pk for run in waiting])
    runs = [
        WaitingRun(
            run.pk,
            run.number,
            run.queue,
            seconds.get(run.pk),
            run.parent_id if run.parent and run.parent.is_open else None,
            sizes.get(run.pk, ONE_PROCESS),
        )
        for run in near
    ]
    ahead = order_claims(run for run in waiting if run.parent is None or run.parent.status == Status.FINISHED)
    starts = schedule_runs(runs, list_desks(workers, active, ends), ends)
    return QueueForecast(starts | {run.pk: TOO_FAR for run in ordered[MOST:]}, ends, QueueState(sizes, workers, ahead, held))


def list_desks(workers: Iterable[Worker], active: Iterable[Run], ends: Mapping[UUID, float | None]) -> list[Desk]:
    """Of ``workers``; one that trains is free when its run ends."""
    busy = {run.owner.split("/")[0]: ends[run.pk] for run in active}
    return [Desk(frozenset(worker.queues), busy.get(worker.name, 0.0), worker.gpus, worker.cpus) for worker in workers]


def estimate_seconds(runs: Iterable[Run]) -> dict[UUID, float | None]:
    """How long each run takes from where it is: the steps left at the median pace of its team's finished runs like it, within its time limit.

    None where no finished run tells. Runs that are alike are looked up once.
    """
    by_team: defaultdict[int, list[UUID]] = defaultdict(list)
    for run in runs:
        by_team[run.team_id].append(run.pk)
    return {key: seconds for team, keys in by_team.items() for key, seconds in estimate_team_seconds(team, keys).items()}


def estimate_team_seconds(team: Any, keys: Sequence[UUID]) -> dict[UUID, float | None]:
    columns = ("pk", "queue", "step", "total_steps", "spec__limits__minutes", *MANNER_COLUMNS)
    rows = list(Run.objects.of(team).filter(pk__in=keys).values(*columns))
    paces: dict[Any, float | None] = {}
    known: dict[UUID, float | None] = {}
    for row, manner in zip(rows, list_run_manners(team, rows), strict=True):
        like = manner, row["queue"]
        if like not in paces:
            found = find_manner_paces(team, *like)
            paces[like] = median(pace.seconds for pace in found) if found else None
        pace, most = paces[like], (row["spec__limits__minutes"] or float("inf")) * 60
        known[row["pk"]] = None if pace is None else min(most, pace * max(0, row["total_steps"] - row["step"]))
    return known
