"""A Celery worker in this process: one run at a time, one forked child that supervises it, drained by the first signal, ended by the second."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from typing import Any

from celery import signals
from django.conf import settings
from django.db import connections
from django.utils.module_loading import import_string

from lab.celery import app
from lab.lib.processes import die_with_parent, kill_tree
from lab.training.workers.departure import DeparturePlan, DepartureWatch
from lab.training.workers.heartbeat import Heartbeat, RepeatingThread
from lab.training.workers.machine_use import UseSampler
from lab.training.workers.models import ANALYSIS, Worker

log = logging.getLogger(__name__)

STAYING = DeparturePlan()
STARTS = "starts"  # lane of the commands that start workers: not run by a worker that such a command may have started, and that leaves in between
WORKER = "LAB_WORKER"  # in the environment of everything the worker starts: the name that goes into a lease


def serve_worker_queues(worker: Worker, plan: DeparturePlan = STAYING) -> int:
    """Takes runs from the worker's queues until it is told to leave or ``plan`` says so; returns the exit code."""
    os.environ[WORKER] = worker.name
    heartbeat = Heartbeat(worker, lambda takes_runs: follow_drain(worker, takes_runs))
    if not plan.stays:
        heartbeat.works |= {"the look whether to leave": DepartureWatch(worker, plan).look}
    try:
        lanes = [(lane, paths) for lane, paths in settings.WORKER_CHORES.items() if plan.stays or lane != STARTS]
        chores = [RepeatingThread(f"chores: {lane}", settings.SWEEP_SECONDS, {path: import_string(path) for path in paths}) for lane, paths in lanes]
        chores.append(UseSampler(worker))
        celery = celery_worker(worker)
        drained = connect_signals(heartbeat, chores)
        connections.close_all()  # the forked child must not share a connection
        celery.start()
        for chore in chores:
            chore.end()
    finally:
        heartbeat.leave()
    return 0 if drained == ["Warm"] else int(celery.exitcode or 0)


def connect_signals(heartbeat: Heartbeat, chores: list[RepeatingThread]) -> list[str]:
    """Connects the worker's signals; the list it returns collects how the worker was told to leave, ``Warm`` or ``Cold``."""
    told: list[str] = []

    def leaving(how: str, **kwargs: Any) -> None:
        told[:] = [how]
        if how == "Warm":
            heartbeat.drain()
        else:  # told twice: nothing below us may outlive us; the lease of its run expires and another worker goes on from the last checkpoint
            kill_tree(os.getpid(), keep_root=True)

    def ready(**kwargs: Any) -> None:  # the child is forked by now; threads come after it
        for thread in (heartbeat, *chores):
            if thread.ident is None:
                thread.start()

    # Of two SIGTERM at once the second interrupts Celery's handler of the first, which may hold this lock: the worker waited for itself for ever.
    signals.worker_shutting_down.lock = threading.RLock()
    signals.worker_shutting_down.connect(leaving, weak=False)
    signals.worker_ready.connect(ready, weak=False)
    signals.worker_process_init.connect(child_begins, weak=False)
    return told


def follow_drain(worker: Worker, takes_runs: bool) -> None:
    """A drained worker leaves the messages of runs to others; without this it would eat them, and they would be sent again only after a while."""
    act = app.control.add_consumer if takes_runs else app.control.cancel_consumer
    for queue in worker.queues:
        if queue != ANALYSIS:
            act(queue, destination=[f"{worker.pid}@{worker.host}"])


def celery_worker(worker: Worker) -> Any:
    warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")
    warnings.filterwarnings("ignore", message=r"\s*In Celery 5.1 we introduced")  # decided in settings
    return app.Worker(
        hostname=f"{worker.pid}@{worker.host}",
        queues=worker.queues,
        pool="prefork",
        concurrency=1,
        prefetch_multiplier=1,
        loglevel="INFO",
        optimization="fair",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )


def child_begins(**kwargs: Any) -> None:
    """In the forked child: a worker that is killed takes its supervisor along; the trainer lives on and is adopted by the next claim."""
    die_with_parent(signal.SIGKILL)
