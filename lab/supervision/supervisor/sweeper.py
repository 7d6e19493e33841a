"""What no single worker is responsible for: runs whose worker is gone, and waiting runs whose message is.

Every worker sweeps every few seconds. All changes are conditional, so that of several sweepers one acts.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from datetime import timedelta

import redis
from django.conf import settings
from django.db.models.functions import Now

from lab.supervision.supervisor.run_claims import set_waiting_reason
from lab.training.runs import live
from lab.training.runs.launch import enqueue_run
from lab.training.runs.models import Run, Status
from lab.watching.usage import quotas

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=10)  # a message is looked for when a run has waited this long


class Sweeper:
    """After an outage of the database leases have run out while their owners could not renew them: those come first."""

    def __init__(self) -> None:
        self.swept_at: float | None = None
        self.forgiving_until = 0.0

    def sweep(self) -> None:
        waiting = list(Run.across_teams.waiting().filter(queued_at__lt=Now() - OVERDUE).order_by("queued_at"))  # raises while it is away
        now = time.monotonic()
        if self.swept_at is not None and now - self.swept_at > settings.LEASE_SECONDS / 2:
            self.forgiving_until = now + settings.LEASE_SECONDS / 2
        self.swept_at = now
        if now >= self.forgiving_until:
            lose_expired()
        if waiting:
            send_again(select_unheld_runs(waiting))


def select_unheld_runs(waiting: list[Run]) -> list[Run]:
    """Those that no quota holds; each of the others is given the reason, and a run that is held no longer loses it."""
    reasons = quotas.held_all(waiting)
    for run in waiting:
        if run.pk in reasons or run.reason.startswith(quotas.WAITING):
            set_waiting_reason(run, reasons.get(run.pk, ""))
    return [run for run in waiting if run.pk not in reasons]


def lose_expired() -> None:
    for run in Run.across_teams.expired():
        owner = run.owner
        if run.lose():
            log.warning("run %s lost its worker %s: %s", run.pk, owner, run.status)
            live.publish_state(run)
            if run.status == Status.LOST and not run.outside:
                enqueue_run(run)


def send_again(waiting: list[Run]) -> None:
    """Sends the messages of runs that have waited for some time, when a queue has fewer messages than runs wait for it."""
    try:
        client = redis.Redis.from_url(settings.REDIS_URL)
        lengths = {queue: int(client.llen(queue)) for queue in {run.queue for run in waiting}}  # type: ignore[arg-type]
    except redis.RedisError as error:
        log.warning("Redis is away, %d waiting runs cannot be sent (%s)", len(waiting), error)
        return
    counts = Counter(run.queue for run in waiting)
    for run in waiting:
        if lengths[run.queue] < counts[run.queue]:
            enqueue_run(run)


sweeper = Sweeper()


def sweep_runs() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    sweeper.sweep()
