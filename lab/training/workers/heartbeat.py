"""A worker's row: registered at the start, renewed every few seconds, marked when the worker drains, gone after it.

The chores of a worker (sweeping up after lost ones) run beside it. Both go on when PostgreSQL or Redis is away for a while.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import psutil
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from lab.lib.clock import database_now
from lab.lib.refusals import Refusal
from lab.training.workers.gpus import Gpu, describe_gpus
from lab.training.workers.models import Worker, WorkerStart
from trainers.contract.machine import list_optional_packages

log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
COMPLAIN_SECONDS = 60.0  # the same trouble is logged once in this time
FORGET_AFTER = timedelta(days=1)  # rows that killed workers left


def default_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}-{secrets.token_hex(3)}"


def register_worker(name: str, queues: list[str], gpus: Sequence[Gpu] = (), takes_one: bool = False) -> Worker:
    """The row of this worker. Raises Refusal."""
    now = database_now()
    fields = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "queues": queues,
        "gpu": describe_gpus(gpus)[:100],
        "gpu_memory": min((gpu.memory for gpu in gpus), default=0),
        "gpu_count": len(gpus),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory": psutil.virtual_memory().total,
        "packages": list_optional_packages(),
        "draining": False,
        "takes_runs": True,
        "takes_one": takes_one,
        "runs_taken": 0,
        "started_at": now,
        "seen_at": now,
    }
    with transaction.atomic():
        other = Worker.objects.select_for_update().filter(name=name).first()
        if other and Worker.objects.alive().filter(pk=other.pk).exists() and not is_ours_and_dead(other):
            raise Refusal(f"a worker named {name!r} is already running on {other.host} (process {other.pid}); give this one another --name")
        worker, _ = Worker.objects.update_or_create(name=name, defaults=fields)
        note_arrival(worker)
    return worker


def note_arrival(worker: Worker) -> None:
    """The oldest start of one of its queues that still waits for a worker has got one."""
    start = WorkerStart.objects.coming().select_for_update().filter(queue__in=worker.queues).order_by("started_at").first()
    if start:
        start.worker = worker.name
        start.save(update_fields=["worker"])


def is_ours_and_dead(worker: Worker) -> bool:
    return worker.host == socket.gethostname() and not psutil.pid_exists(worker.pid)


class RepeatingThread(threading.Thread):
    """Calls each of ``works`` in turn every ``seconds`` until it is ended; one that fails is logged, and the others have their turn."""

    def __init__(self, name: str, seconds: float, works: Mapping[str, Callable[[], None]]) -> None:
        super().__init__(name=name, daemon=True)
        self.seconds, self.works = seconds, dict(works)
        # Not an Event, whose lock a thread cannot take twice: of two SIGTERM at once the second interrupts the first's handler and waited for it.
        self.woken = threading.Condition(threading.RLock())
        self.awake, self.ended = False, False
        self.complained: dict[str, float] = {}

    def run(self) -> None:
        while not self.ended:
            for name, work in self.works.items():
                if not self.ended:
                    self.call_work(name, work)
            with self.woken:
                if not self.awake:
                    self.woken.wait(self.seconds)
                self.awake = False
        connection.close()

    def call_work(self, name: str, work: Callable[[], None]) -> None:
        """The next call after trouble starts with a fresh database connection."""
        try:
            work()
        except Exception as error:
            connection.close()
            if time.monotonic() - self.complained.get(name, float("-inf")) > COMPLAIN_SECONDS:
                self.complained[name] = time.monotonic()
                expected = isinstance(error, DatabaseError)
                log.warning("%s failed and is tried again every %s s: %s", name, self.seconds, error, exc_info=not expected)

    def now(self) -> None:
        """Calls at once instead of after the pause. Safe in a signal handler, also in one that interrupts another."""
        with self.woken:
            self.awake = True
            self.woken.notify_all()

    def end(self) -> None:
        self.ended = True
        self.now()


class Heartbeat(RepeatingThread):
    """Keeps ``seen_at`` fresh and carries the wish to drain into the row, where the supervisor of the current run reads it.

    ``listen`` is told when people drain the worker, and when it takes runs again.
    """

    def __init__(self, worker: Worker, listen: Callable[[bool], None] | None = None) -> None:
        super().__init__("heartbeat", BEAT_SECONDS, {"the heartbeat": self.beat})
        self.worker, self.draining, self.listen = worker, False, listen
        self.takes_runs = True

    def beat(self) -> None:
        fields: dict[str, Any] = {"seen_at": Now()} | ({"draining": True} if self.draining else {})  # never back: a claim may be under way
        if not Worker.objects.filter(pk=self.worker.pk).update(**fields):
            Worker.objects.create(**{field.attname: getattr(self.worker, field.attname) for field in Worker._meta.fields} | fields)
        Worker.objects.filter(seen_at__lt=Now() - FORGET_AFTER).delete()
        takes_runs = bool(Worker.objects.values_list("takes_runs", flat=True).get(pk=self.worker.pk))
        if self.listen and takes_runs != self.takes_runs:
            self.listen(takes_runs)
        self.takes_runs = takes_runs

    def drain(self) -> None:
        """Safe in a signal handler."""
        self.draining = True
        self.now()

    def leave(self) -> None:
        """Removes the row of a worker that has left in order."""
        self.end()
        if self.is_alive():
            self.join(BEAT_SECONDS)
        try:
            Worker.objects.filter(pk=self.worker.pk).delete()
        except DatabaseError as error:
            log.warning("the worker's row stays until it is forgotten: %s", error)
        connection.close()
