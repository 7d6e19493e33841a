"""/metrics: what Prometheus is told, read from rows when it asks, so that any number of web processes say the same and a restart resets nothing.

Every part is a query or two that end after STATEMENT_SECONDS, and fails alone: what could not be read is missing and named by
``lab_metrics_failed``. Labels hold names of queues, workers, folders and states; teams and people are in none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import redis
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import Count, F, Min, Sum
from django.db.models.functions import Now
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lab.edges.operations import machine_figures
from lab.lib import readiness
from lab.training.runs.models import ACTIVE, Run, Status
from lab.training.workers.models import Worker
from lab.watching.alerts.models import Delivery, DeliveryState
from lab.watching.usage.models import Storage

log = logging.getLogger(__name__)

STATEMENT_SECONDS = 2
KEPT_SECONDS = 5.0  # a text is good for so long, however many ask
DAY = timedelta(days=1)
STORAGE_KINDS = ("checkpoints", "spools", "datasets", "database")
WORKER_STATES = ("ready", "drained", "leaving", "lost")

Part = Callable[[], Iterable[GaugeMetricFamily]]


def make_gauge(name: str, words: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """A gauge with one label, in the order of its values."""
    gauge = GaugeMetricFamily(name, words, labels=[label])
    for key in sorted(values):
        gauge.add_metric([key], values[key])
    return gauge


def measure_runs() -> Iterator[GaugeMetricFamily]:
    kept = Run.across_teams.filter(binned_at=None)
    runs = GaugeMetricFamily("lab_runs", "Runs by status and queue, without those in the bin", labels=["status", "queue"])
    for status, queue, count in kept.order_by("status", "queue").values_list("status", "queue").annotate(count=Count("pk")):
        runs.add_metric([status, queue], count)
    yield runs
    failed = Run.across_teams.filter(status=Status.FAILED, finished_at__gte=Now() - DAY).count()
    yield GaugeMetricFamily("lab_runs_failed_day", "Runs that failed in the last 24 hours", failed)


def measure_queues() -> Iterator[GaugeMetricFamily]:
    """Of queues that some worker serves or some run waits in."""
    serving: Counter[str] = Counter(queue for queues in Worker.objects.taking_runs().values_list("queues", flat=True) for queue in queues)
    waiting, oldest = dict.fromkeys(serving, 0), dict.fromkeys(serving, 0.0)
    rows = Run.across_teams.waiting().order_by("queue").values_list("queue").annotate(count=Count("pk"), age=Now() - Min("queued_at"))
    for queue, count, age in rows:
        waiting[queue], oldest[queue] = count, age.total_seconds()
    yield make_gauge("lab_queue_waiting", "Runs that a worker of the queue could take now", "queue", waiting)
    yield make_gauge("lab_queue_oldest_wait_seconds", "How long the one that waits longest has waited", "queue", oldest)
    yield make_gauge("lab_queue_workers", "Workers that take runs of the queue", "queue", dict.fromkeys(waiting, 0) | dict(serving))


def name_worker_state(worker: Any) -> str:
    if not worker.is_alive:
        return "lost"
    if worker.draining:
        return "leaving"
    return "ready" if worker.takes_runs else "drained"


def measure_workers() -> Iterator[GaugeMetricFamily]:
    """A worker that was killed stands here for a day."""
    workers: list[Any] = list(Worker.objects.judged().annotate(unseen=Now() - F("seen_at")).order_by("name"))
    states = Counter(name_worker_state(worker) for worker in workers)
    yield make_gauge("lab_workers", "Worker processes by state", "state", {state: states[state] for state in WORKER_STATES})
    unseen = {worker.name: worker.unseen.total_seconds() for worker in workers}
    yield make_gauge("lab_worker_unseen_seconds", "Since the worker's last heartbeat", "worker", unseen)


def measure_ingest() -> Iterator[GaugeMetricFamily]:
    """Spools are measured where this machine sees the run folders; where it does not, how long nothing was heard says as much."""
    fields = ("pk", "ingested", "spool_begin", "spool_token", "progress_at")
    runs: list[Any] = list(Run.across_teams.filter(status__in=ACTIVE).only(*fields).annotate(silent=Now() - F("progress_at")))
    behind = [max(0, machine_figures.measure_spool_size(run) - run.ingested) for run in runs]
    silent = [run.silent.total_seconds() for run in runs if run.silent is not None]
    yield GaugeMetricFamily("lab_ingest_lag_bytes", "Bytes of spools of active runs that are not in the database yet", sum(behind))
    yield GaugeMetricFamily("lab_ingest_lag_worst_bytes", "Of the run that is furthest behind", max(behind, default=0))
    yield GaugeMetricFamily("lab_runs_silent_seconds", "Since the active run heard of least has reported anything", max(silent, default=0.0))


def measure_totals() -> Iterator[GaugeMetricFamily]:
    sums = Run.across_teams.aggregate(rollouts=Sum("rollouts"), ingested=Sum("ingested"), tokens=Sum("tokens"))
    yield GaugeMetricFamily("lab_rollouts_stored", "Rollouts in the database; fewer once runs are deleted", sums["rollouts"] or 0)
    yield GaugeMetricFamily("lab_events_stored_bytes", "Bytes of events (spools) in the database", sums["ingested"] or 0)
    yield GaugeMetricFamily("lab_tokens_stored", "Tokens of all runs", sums["tokens"] or 0)


def measure_deliveries() -> Iterator[GaugeMetricFamily]:
    failed = Delivery.across_teams.filter(state=DeliveryState.FAILED, created_at__gte=Now() - DAY).count()
    yield GaugeMetricFamily("lab_deliveries_failed_day", "Mails and webhooks of the last 24 hours that were given up", failed)


def measure_storage() -> Iterator[GaugeMetricFamily]:
    sums = Storage.across_teams.aggregate(**{kind: Sum(kind) for kind in STORAGE_KINDS})
    values = {kind: sums[kind] or 0 for kind in STORAGE_KINDS}
    yield make_gauge("lab_storage_bytes", "What all teams store, as last weighed", "kind", values)


def measure_database() -> Iterator[GaugeMetricFamily]:
    use = machine_figures.measure_database()
    yield GaugeMetricFamily("lab_database_size_bytes", "Size of the lab's database", use.size)
    yield GaugeMetricFamily("lab_database_connections", "Connections to the lab's database", use.connections)
    yield GaugeMetricFamily("lab_database_connections_limit", "max_connections of the server", use.limit)


def measure_redis() -> Iterator[GaugeMetricFamily]:
    use = machine_figures.measure_redis()
    yield GaugeMetricFamily("lab_redis_memory_bytes", "Memory that Redis uses", use.memory)
    yield GaugeMetricFamily("lab_redis_memory_limit_bytes", "maxmemory of Redis; 0 is no limit", use.limit)


def measure_disks() -> Iterator[GaugeMetricFamily]:
    """Of the machine of the web process."""
    free, size = {}, {}
    for name, folder in machine_figures.list_disk_folders().items():
        free[name], size[name] = machine_figures.measure_disk(folder)
    yield make_gauge("lab_disk_free_bytes", "Bytes left where the folder is", "folder", free)
    yield make_gauge("lab_disk_size_bytes", "Bytes in all where the folder is", "folder", size)


DATABASE_PARTS: dict[str, Part] = {
    "runs": measure_runs,
    "queues": measure_queues,
    "workers": measure_workers,
    "ingest": measure_ingest,
    "totals": measure_totals,
    "deliveries": measure_deliveries,
    "storage": measure_storage,
    "database": measure_database,
}
OTHER_PARTS: dict[str, Part] = {"redis": measure_redis, "disks": measure_disks}


class LabCollector(Collector):
    def collect(self) -> Iterator[GaugeMetricFamily]:
        checks = readiness.probe.look().checks
        yield GaugeMetricFamily("lab_database_up", "1 when the database answers within two seconds", checks["database"] == readiness.OK)
        yield GaugeMetricFamily("lab_redis_up", "1 when Redis answers within two seconds", checks["redis"] == readiness.OK)
        failed = dict.fromkeys([*DATABASE_PARTS, *OTHER_PARTS], 0)
        for name, measure in DATABASE_PARTS.items():
            found = read_rows(name, measure) if checks["database"] == readiness.OK else None
            failed[name] = found is None
            yield from found or ()
        for name, measure in OTHER_PARTS.items():
            try:
                yield from list(measure())
            except (OSError, redis.RedisError) as error:
                log.warning("metrics: %s could not be measured: %s", name, error)
                failed[name] = 1
        yield make_gauge("lab_metrics_failed", "1 where a part of these metrics could not be read and is missing", "part", failed)


def read_rows(name: str, measure: Part) -> list[GaugeMetricFamily] | None:
    """What a part says; None when the database does not say it in time."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{STATEMENT_SECONDS}s"])
            return list(measure())
    except (DatabaseError, InterfaceError) as error:
        log.warning("metrics: %s could not be read: %s", name, str(error).strip())
        return None


class MetricsText:
    """The text as it is sent. Of many who ask at once one reads, and the others get what it found."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(LabCollector())
        self.lock = threading.Lock()
        self.kept: tuple[float, bytes] | None = None

    def read(self) -> bytes:
        with self.lock:
            if self.kept is None or time.monotonic() - self.kept[0] > KEPT_SECONDS:
                self.kept = time.monotonic(), generate_latest(self.registry)
            return self.kept[1]


text = MetricsText()
