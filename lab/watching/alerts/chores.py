"""What every worker does now and then: look for what has happened, and deliver what waits. Of several workers one does each piece."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models.functions import Now

from lab.lib.clock import database_now
from lab.watching.alerts.defaults import begin_all
from lab.watching.alerts.models import Delivery, DeliveryState, Notice, Watch
from lab.watching.alerts.watching import doctor, metrics, queues, quotas, runs

log = logging.getLogger(__name__)

KEPT = timedelta(days=180)  # read notices, and deliveries that ended, are forgotten after that


def ensure_default_rules(since: datetime, now: datetime) -> None:
    begin_all()


def delete_expired_notices(since: datetime, now: datetime) -> None:
    Notice.across_teams.filter(read_at__lt=now - KEPT, created_at__lt=now - KEPT).delete()
    Delivery.across_teams.filter(created_at__lt=now - KEPT).exclude(state=DeliveryState.WAITING).delete()


WATCHERS: dict[str, tuple[Callable[[datetime, datetime], None], timedelta]] = {
    "defaults": (ensure_default_rules, timedelta(seconds=5)),
    "runs": (runs.watch_runs, timedelta(seconds=4)),
    "metrics": (metrics.watch_metric_rules, timedelta(seconds=10)),
    "doctor": (doctor.watch_doctor_findings, timedelta(seconds=30)),
    "queues": (queues.watch_queues, timedelta(minutes=1)),
    "quotas": (quotas.watch_quotas, timedelta(minutes=2)),
    "forget": (delete_expired_notices, timedelta(days=1)),
}


def run_due_watchers() -> None:
    """One round: one query when nothing is to be looked at. Raises database errors; the caller sweeps again later."""
    watches = Watch.objects.annotate(now=Now()).values_list("name", "next_at", "now")
    next_at = {name: at for name, at, _ in watches}
    now = next((at for _, _, at in watches), None) or database_now()
    if missing := [name for name in WATCHERS if name not in next_at]:
        Watch.objects.bulk_create([Watch(name=name, seen_to=now, next_at=now) for name in missing], ignore_conflicts=True)
    for name in WATCHERS:
        if next_at.get(name, now) <= now:
            run_watcher(name, now)


def run_watcher(name: str, now: datetime) -> None:
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
