"""What a team may use and what it used: its limits and prices, who held a worker for how long, and what its files weigh."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamOwned
from lab.training.runs.models import Run

WARN_PERCENT = 80
USER = settings.AUTH_USER_MODEL


class Quota(TeamOwned):
    """A team's limits; None is no limit. Claiming a run locks this row, so that two workers cannot both take the last place."""

    team = models.OneToOneField(Team, models.CASCADE, related_name="quota")
    concurrent_runs = models.PositiveIntegerField(null=True)  # that train at the same time
    gpu_hours = models.FloatField(null=True)  # a calendar month, UTC
    storage_bytes = models.BigIntegerField(null=True)
    queues = models.JSONField(null=True)  # names of Celery queues the team's runs may go to; None: every queue
    warn_percent = models.PositiveSmallIntegerField(default=WARN_PERCENT)  # of a limit, from which on people are warned
    gpu_hour_price = models.FloatField(null=True)
    compute_hour_price = models.FloatField(null=True)  # an hour of a worker without a GPU
    label_minute_price = models.FloatField(null=True)
    currency = models.CharField(max_length=3, default="EUR")
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"quota of {self.team}"


class Lease(TeamOwned):
    """One worker held by one run, from the claim to ``seen_at``: the end, or the last heartbeat of a worker that was killed."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="leases")
    run = models.ForeignKey(Run, models.SET_NULL, null=True, related_name="leases")
    number = models.PositiveIntegerField()  # of the run, also once it is deleted
    user = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")  # who launched it
    recipe = models.CharField(max_length=100)
    owner = models.CharField(max_length=200, unique=True)  # worker name and claim token, as in Run.owner
    gpus = models.PositiveSmallIntegerField()  # of the worker; 0: its hours are compute hours
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["team", "seen_at"], name="lease_of_month")]

    def __str__(self) -> str:
        return f"#{self.number} on {self.owner}"


class RunStorage(TeamOwned):
    """Bytes in a run's folder when it was last weighed."""

    team_path = "run__team"

    run = models.OneToOneField(Run, models.CASCADE, related_name="storage")
    checkpoints = models.BigIntegerField(default=0)  # checkpoints and exported policies
    other = models.BigIntegerField(default=0)  # spool, logs, spec
    measured_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"storage of {self.run_id}"


class Storage(TeamOwned):
    """Bytes of a team when they were last added up."""

    team = models.OneToOneField(Team, models.CASCADE, related_name="storage")
    checkpoints = models.BigIntegerField(default=0)
    spools = models.BigIntegerField(default=0)
    datasets = models.BigIntegerField(default=0)
    database = models.BigIntegerField(default=0)  # its share of the large tables, estimated
    measured_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"storage of {self.team}"

    @property
    def total(self) -> int:
        return self.checkpoints + self.spools + self.datasets + self.database
