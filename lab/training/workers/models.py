"""Workers: who can train, where, and whether they are alive."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models.functions import Now

ALIVE = timedelta(seconds=30)
ANSWERED_WITHIN = timedelta(minutes=2)  # a command that starts a worker has ended by then, or whoever ran it is gone
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
    gpu = models.CharField(max_length=100, blank=True)  # name and memory of its GPU, and how many of them; empty on a CPU worker
    gpu_memory = models.BigIntegerField(default=0, db_default=0)  # bytes, of one GPU: the smallest
    gpu_count = models.PositiveIntegerField(default=0, db_default=0)  # see ``gpus``
    cpus = models.PositiveIntegerField(default=0)
    memory = models.BigIntegerField(default=0)  # bytes
    packages = models.JSONField(null=True)  # modules of trainers.contract.machine.PACKAGES that it has
    draining = models.BooleanField(default=False)  # finishes or hands back its run, then leaves
    takes_runs = models.BooleanField(default=True, db_default=True)  # False: somebody drains it; it finishes its run and stays
    takes_one = models.BooleanField(default=False, db_default=False)  # leaves after its first run
    runs_taken = models.PositiveIntegerField(default=0, db_default=0)  # since it was started
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())

    is_alive: bool  # of rows that ``judged`` gives

    objects = WorkerQuerySet.as_manager()

    def __str__(self) -> str:
        return self.name

    @property
    def trains(self) -> bool:
        return self.queues != [ANALYSIS]

    @property
    def gpus(self) -> int:
        """How many GPUs it holds; one of an earlier version does not count them, and has one or none."""
        return max(self.gpu_count, int(bool(self.gpu)))


OUTCOMES = {
    "running": "starting",
    "interrupted": "interrupted",
    "failed": "failed",
    "came": "its worker came",
    "coming": "waiting for its worker",
    "missing": "no worker came",
}


class WorkerStartQuerySet(models.QuerySet["WorkerStart"]):
    def coming(self) -> WorkerStartQuerySet:
        """Whose worker is still waited for."""
        under_way = models.Q(ended_at=None, started_at__gt=Now() - ANSWERED_WITHIN)
        return self.filter(under_way | models.Q(exit_code=0), worker="", expected_until__gt=Now())

    def judged(self) -> WorkerStartQuerySet:
        """Each with ``state``, a key of OUTCOMES. Interrupted: the worker that ran the command is gone, and nobody knows how it ended."""
        cases = [
            models.When(ended_at=None, started_at__gt=Now() - ANSWERED_WITHIN, then=models.Value("running")),
            models.When(ended_at=None, then=models.Value("interrupted")),
            models.When(exit_code=None, then=models.Value("failed")),
            models.When(~models.Q(exit_code=0), then=models.Value("failed")),
            models.When(~models.Q(worker=""), then=models.Value("came")),
            models.When(expected_until__gt=Now(), then=models.Value("coming")),
        ]
        return self.annotate(state=models.Case(*cases, default=models.Value("missing")))  # type: ignore[no-redef]  # as ``is_alive`` above


class WorkerStart(models.Model):
    """One run of the command that starts a worker for ``queue`` (LAB_START): what it said, and the first worker of the queue that came after it."""

    queue = models.CharField(max_length=50)
    command = models.JSONField(default=list)
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)  # of the command, not of the worker
    exit_code = models.IntegerField(null=True)  # None while it runs, and where it could not be run or ended
    output = models.TextField(blank=True)  # the end of it
    expected_until = models.DateTimeField()  # from then on no worker is waited for
    worker = models.CharField(max_length=200, blank=True)  # name of the worker that came

    state: str  # of rows that ``judged`` gives

    objects = WorkerStartQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["queue", "-started_at"], name="worker_start_newest")]

    def __str__(self) -> str:
        return f"{self.queue}: {' '.join(self.command)}"

    @property
    def outcome(self) -> str:
        return OUTCOMES[self.state]

    @property
    def last_line(self) -> str:
        return self.output.strip().rpartition("\n")[2][:200]


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
