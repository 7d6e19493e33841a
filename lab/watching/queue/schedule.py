"""When waiting runs start and end: the workers of today, the claim order of now, played forward. Pure arithmetic in seconds from now."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from lab.training.runs.process_counts import ONE_PROCESS, RunSize

UNLIKE = "unknown: no finished run like it"


@dataclass(frozen=True)
class Desk:
    """A worker: the queues it serves, the seconds until it is free, None where that is not known, and what it has."""

    queues: frozenset[str]
    free: float | None
    gpus: int = 0
    cpus: int = 1

    def takes(self, run: WaitingRun) -> bool:
        return run.queue in self.queues and run.size.fits(self.gpus, self.cpus)


@dataclass(frozen=True)
class WaitingRun:
    """``seconds`` it takes, None where no finished run tells. ``parent``: the run it starts after, if that has not finished."""

    key: UUID
    number: int
    queue: str
    seconds: float | None
    parent: UUID | None = None
    size: RunSize = ONE_PROCESS


@dataclass(frozen=True)
class Forecast:
    """Seconds from now; None where that is not known, and then ``unknown`` says why."""

    start: float | None
    end: float | None
    unknown: str = ""


def schedule_runs(runs: Sequence[WaitingRun], desks: Sequence[Desk], ends: Mapping[UUID, float | None]) -> dict[UUID, Forecast]:
    """``runs`` in the order in which they are claimed, ``ends`` of the runs in training. A worker whose run has no known end is never free here,
    so that a start is the latest it may be.
    """
    known: dict[UUID, Forecast] = {}
    ready = {run.key: 0.0 if run.parent is None else ends.get(run.parent) for run in runs}
    left = list(runs)
    free = [(desk.free, place) for place, desk in enumerate(desks) if desk.free is not None]
    heapq.heapify(free)
    while free and left:
        now, place = heapq.heappop(free)
        mine = [run for run in left if desks[place].takes(run) and ready[run.key] is not None]
        chosen = next((run for run in mine if (ready[run.key] or 0.0) <= now), None)
        if chosen is None:
            later = [moment for run in mine if (moment := ready[run.key]) is not None]
            # A stage may become ready through a run that another worker takes first.
            pending = [moment for moment, _ in free]
            if moments := [moment for moment in (*later, *pending) if moment > now]:
                heapq.heappush(free, (min(moments), place))
            continue
        left.remove(chosen)
        end = None if chosen.seconds is None else now + chosen.seconds
        known[chosen.key] = Forecast(now, end, UNLIKE if end is None else "")
        for run in left:
            if run.parent == chosen.key:
                ready[run.key] = end
        if end is not None:
            heapq.heappush(free, (end, place))
    return known | {run.key: explain_unknown(run, runs, known, desks) for run in left}


def explain_unknown(run: WaitingRun, runs: Sequence[WaitingRun], known: Mapping[UUID, Forecast], desks: Collection[Desk]) -> Forecast:
    if not any(run.queue in desk.queues for desk in desks):
        return Forecast(None, None, f"unknown: no worker for {run.queue}")
    if not any(desk.takes(run) for desk in desks):
        return Forecast(None, None, f"unknown: no worker for {run.queue} with {run.size.words}")
    parent = next((one for one in runs if one.key == run.parent), None)
    if parent is not None and (parent.key not in known or known[parent.key].end is None):
        return Forecast(None, None, f"unknown: #{parent.number} has no known end")
    return Forecast(None, None, "unknown: a run before it has no known end")
