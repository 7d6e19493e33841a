"""What every worker does now and then: look for what has happened, and deliver what waits. Of several workers one does each piece."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from lab.alerts import delivering
from lab.alerts.defaults import begin_all
from lab.alerts.models import Delivery, DeliveryState, Notice, Watch
from lab.alerts.watching import doctor, metrics, queues, quotas, runs

log = logging.getLogger(__name__)

KEPT = timedelta(days=180)  # read notices, and deliveries that ended, are forgotten after that


def begin(since: datetime, now: datetime) -> None:
    begin_all()


def forget(since: datetime, now: datetime) -> None:
    Notice.objects.filter(read_at__lt=now - KEPT, created_at__lt=now - KEPT).delete()
    Delivery.objects.filter(created_at__lt=now - KEPT).exclude(state=DeliveryState.WAITING).delete()


WATCHERS: dict[str, tuple[Callable[[datetime, datetime], None], timedelta]] = {
    "defaults": (begin, timedelta(seconds=5)),
    "runs": (runs.look, timedelta(seconds=4)),
    "metrics": (metrics.look, timedelta(seconds=10)),
    "doctor": (doctor.look, timedelta(seconds=30)),
    "queues": (queues.look, timedelta(minutes=1)),
    "quotas": (quotas.look, timedelta(minutes=2)),
    "forget": (forget, timedelta(days=1)),
}


def sweep() -> None:
    """One round: one query when nothing is to be looked at. Raises database errors; the caller sweeps again later."""
    now = timezone.now()
    next_at = dict(Watch.objects.values_list("name", "next_at"))
    if missing := [name for name in WATCHERS if name not in next_at]:
        Watch.objects.bulk_create([Watch(name=name, seen_to=now, next_at=now) for name in missing], ignore_conflicts=True)
    for name in WATCHERS:
        if next_at.get(name, now) <= now:
            watch(name, now)


def watch(name: str, now: datetime) -> None:
    """What a watcher told and how far it looked are one transaction: a worker that dies meanwhile has told nothing."""
    look, every = WATCHERS[name]
    try:
        with transaction.atomic():
            row = Watch.objects.select_for_update(skip_locked=True).filter(name=name, next_at__lte=now).first()
            if row is None:
                return
            look(row.seen_to, now)
            Watch.objects.filter(pk=name).update(seen_to=now, next_at=now + every)
    except Exception:  # one watcher that fails, as over a run no other can read, must not silence the rest
        log.exception("alerts: looking for %s failed", name)
        Watch.objects.filter(pk=name).update(next_at=now + max(every, timedelta(minutes=1)))


def deliver() -> None:
    """One round of mails and webhooks. Raises database errors; the caller delivers again later."""
    delivering.deliver()
