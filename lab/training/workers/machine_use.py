"""What workers' machines and GPUs do over time: measured by each worker, kept for a day, read as curves for the workers page."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import psutil
from django.db import connection
from django.db.models import Avg
from django.db.models.functions import Extract, Floor, Now

from lab.lib.clock import database_now
from lab.lib.sparkline import Sparkline, build_sparkline
from lab.training.workers.gpus import measure_visible_gpus
from lab.training.workers.heartbeat import RepeatingThread
from lab.training.workers.models import Worker, WorkerUse

SAMPLE_SECONDS = 30.0
KEPT = timedelta(hours=24)
POINTS = 60  # of a curve
HOURS = (1, 6, 24)  # that a page may show


class UseSampler(RepeatingThread):
    """Stores what the worker's machine does, and forgets what is older than KEPT."""

    def __init__(self, worker: Worker) -> None:
        super().__init__("machine use", SAMPLE_SECONDS, {"measuring the machine": self.store_use})
        self.worker = worker
        psutil.cpu_percent()  # the next answer is the mean since this one

    def store_use(self) -> None:
        gpus = measure_visible_gpus()
        WorkerUse.objects.create(
            worker=self.worker,
            cpu_percent=psutil.cpu_percent(),
            memory=psutil.virtual_memory().used,
            gpu_percent=gpus.percent if gpus else None,
            gpu_memory=gpus.memory if gpus else None,
        )
        WorkerUse.objects.filter(worker=self.worker, at__lt=Now() - KEPT).delete()
        if threading.current_thread() is self:
            connection.close()  # one that is needed twice a minute is not kept


@dataclass(frozen=True)
class UseCurve:
    """``share`` of 100 in the newest slot, None where that has no value; ``line`` on a scale from 0 to 100 %."""

    name: str
    share: float | None
    line: Sparkline | None


def read_worker_uses(workers: Sequence[Worker], hours: int) -> dict[int, list[UseCurve]]:
    """worker id → a curve each of CPU and memory, and of GPU and GPU memory where there are any: means of POINTS slots of the last ``hours``."""
    width = hours * 3600 / POINTS
    last = math.floor(database_now().timestamp() / width)
    slot = Floor(Extract("at", "epoch") / width)
    uses = WorkerUse.objects.filter(worker__in=workers, at__gte=Now() - timedelta(hours=hours))
    means = uses.annotate(slot=slot).values_list("worker", "slot").annotate(Avg("cpu_percent"), Avg("memory"), Avg("gpu_percent"), Avg("gpu_memory"))
    by_worker: dict[int, dict[int, tuple[float | None, ...]]] = defaultdict(dict)
    for worker, number, *values in means:
        by_worker[worker][int(number) - last] = tuple(values)
    return {worker.pk: build_use_curves(worker, by_worker[worker.pk]) for worker in workers if worker.pk in by_worker}


def build_use_curves(worker: Worker, means: dict[int, tuple[float | None, ...]]) -> list[UseCurve]:
    """``means``: slot, 0 for the newest and negative before → CPU percent, bytes of memory, GPU percent, bytes of GPU memory."""
    scales = (("CPU", 100.0), ("memory", worker.memory), ("GPU", 100.0), ("GPU memory", worker.gpu_memory * worker.gpus))
    curves = []
    for index, (name, full) in enumerate(scales):
        shares = {slot: 100 * value / full for slot, values in means.items() if (value := values[index]) is not None and full}
        if shares:
            slots = range(1 - POINTS, 1)
            line = build_sparkline(slots, [shares.get(slot, math.nan) for slot in slots], bounds=(0.0, 100.0))
            curves.append(UseCurve(name, shares.get(0, shares.get(-1)), line))
    return curves
