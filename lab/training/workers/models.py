"""Workers: who can train, where, and whether they are alive."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models.functions import Now

ALIVE = timedelta(seconds=30)
ANALYSIS = "analysis"  # queue of short questions about stored rollouts, for a worker that needs no GPU


class WorkerQuerySet(models.QuerySet["Worker"]):
    def alive(self) -> WorkerQuerySet:
        return self.filter(seen_at__gte=Now() - ALIVE)

    def judged(self) -> WorkerQuerySet:
        """Each with ``is_alive``, as the database's clock has it."""
        alive = models.ExpressionWrapper(models.Q(seen_at__gte=Now() - ALIVE), output_field=models.BooleanField())
        return self.annotate(is_alive=alive)  # type: ignore[no-redef]  # the plugin adds it to Worker, which says it for rows in hand

    def training(self) -> WorkerQuerySet:
        """Those that take runs."""
        return self.exclude(queues=[ANALYSIS])

    def taking_runs(self) -> WorkerQuerySet:
        """Alive, and neither leaving nor drained by somebody."""
        return self.alive().filter(draining=False, takes_runs=True)

    def serving(self, queue: str) -> WorkerQuerySet:
        return self.taking_runs().filter(queues__contains=[queue])


class Worker(models.Model):
    """One ``manage.py worker`` process. ``name`` is also the owner written into a run's lease."""

    name = models.CharField(max_length=200, unique=True)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    queues = models.JSONField(default=list)
    gpu = models.CharField(max_length=100, blank=True)  # name and memory of its GPU; empty on a CPU worker
    gpu_memory = models.BigIntegerField(default=0, db_default=0)  # bytes
    cpus = models.PositiveIntegerField(default=0)
    memory = models.BigIntegerField(default=0)  # bytes
    packages = models.JSONField(null=True)  # modules of trainers.contract.machine.PACKAGES that it has
    draining = models.BooleanField(default=False)  # finishes or hands back its run, then leaves
    takes_runs = models.BooleanField(default=True, db_default=True)  # False: somebody drains it; it finishes its run and stays
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())

    is_alive: bool  # of rows that ``judged`` gives

    objects = WorkerQuerySet.as_manager()

    def __str__(self) -> str:
        return self.name

    @property
    def trains(self) -> bool:
        return self.queues != [ANALYSIS]


class WorkerUse(models.Model):
    """What a worker's machine and its GPUs did at one moment; of CPUs the mean since the moment before."""

    worker = models.ForeignKey(Worker, models.CASCADE, related_name="uses")
    at = models.DateTimeField(db_default=Now())
    cpu_percent = models.FloatField()  # of all CPUs of the machine, whoever used them
    memory = models.BigIntegerField()  # bytes in use on the machine
    gpu_percent = models.FloatField(null=True)  # of the worker's own GPUs; None without
    gpu_memory = models.BigIntegerField(null=True)  # bytes

    class Meta:
        indexes = [models.Index(fields=["worker", "at"], name="worker_use_by_time")]

    def __str__(self) -> str:
        return f"{self.cpu_percent:.0f} % of {self.worker_id}"
