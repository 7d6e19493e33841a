"""What the queue page and the API show: the team's runs in training with their expected end, and its waiting runs in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from lab.teams.accounts.models import Team
from lab.training.runs import live, wait_reasons
from lab.training.runs.models import ACTIVE, HEAVY_WITH_PARENT, OPEN, WAITING, Priority, Run
from lab.training.runs.queue_order import order_chains
from lab.training.runs.wait_reasons import WaitReason
from lab.watching.queue.forecast import QueueForecast, forecast_queues
from lab.watching.queue.schedule import Forecast

HELD = Forecast(None, None)  # its reason says why


@dataclass(frozen=True)
class Moment:
    """A time to come: the clock's, and how many seconds from now."""

    at: datetime
    seconds: float
    is_today: bool


@dataclass(frozen=True)
class TrainingRow:
    run: Run
    state: dict[str, Any]
    worker: str
    end: Moment | None


@dataclass(frozen=True)
class QueueRow:
    """``stage``: its place in its chain, from 0. ``first`` and ``last``: of the team's in the queue, so that it moves no further."""

    run: Run
    reason: WaitReason
    forecast: Forecast
    start: Moment | None
    end: Moment | None
    head: int
    stage: int
    first: bool
    last: bool

    @property
    def priority(self) -> Priority:
        return Priority(self.run.priority)


@dataclass(frozen=True)
class QueueSection:
    queue: str
    workers: int  # that take runs of it
    rows: list[QueueRow]


@dataclass(frozen=True)
class QueueOverview:
    """``any_worker``: whether a worker that trains takes runs now."""

    training: list[TrainingRow]
    sections: list[QueueSection]
    any_worker: bool

    @property
    def waiting(self) -> int:
        return sum(len(section.rows) for section in self.sections)


def build_queue_overview(team: Team) -> QueueOverview:
    runs = Run.objects.of(team).filter(status__in=OPEN, outside=False).annotate(read_at=Now())
    rows: list[Any] = list(runs.select_related("parent", "created_by").defer(*HEAVY_WITH_PARENT))
    forecast, now = forecast_queues(), rows[0].read_at if rows else timezone.now()
    training = [
        TrainingRow(run, live.describe_run_state(run, now), run.owner.split("/")[0], build_moment(now, forecast.ends.get(run.pk)))
        for run in sorted(rows, key=lambda run: run.number)
        if run.status in ACTIVE
    ]
    sections = list_sections([run for run in rows if run.status in WAITING], forecast, now)
    return QueueOverview(training, sections, any(worker.trains for worker in forecast.state.workers))


def list_sections(waiting: list[Run], forecast: QueueForecast, now: datetime) -> list[QueueSection]:
    reasons = wait_reasons.explain_waiting_runs(waiting, forecast.state) if waiting else {}
    served = [queue for worker in forecast.state.workers for queue in worker.queues]
    sections = []
    for queue in sorted({run.queue for run in waiting}):
        chains = order_chains(run for run in waiting if run.queue == queue)
        rows = [row for place, chain in enumerate(chains) for row in build_chain_rows(chain, reasons, forecast, now, place, len(chains))]
        sections.append(QueueSection(queue, served.count(queue), rows))
    return sections


def build_chain_rows(chain: list[Run], reasons: Any, forecast: QueueForecast, now: datetime, place: int, count: int) -> Iterable[QueueRow]:
    for stage, run in enumerate(chain):
        known = forecast.waiting.get(run.pk, HELD)
        moments = build_moment(now, known.start), build_moment(now, known.end)
        yield QueueRow(run, reasons[run.pk], known, *moments, chain[0].number, stage, place == 0, place == count - 1)


def build_moment(now: datetime, seconds: float | None) -> Moment | None:
    if seconds is None:
        return None
    at = now + timedelta(seconds=seconds)
    return Moment(at, seconds, at.date() == now.date())
