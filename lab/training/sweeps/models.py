"""Sweeps: a recipe, the space its hyperparameters are searched in, and the trials, each an ordinary run with values of its own."""

from __future__ import annotations

import math
import uuid

from django.conf import settings
from django.db import models
from django.db.models import Count, Q

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.runs.models import OPEN, Run, Status
from lab.training.sweeps.halving import list_rungs
from trainers.contract.hyperparameters import TRAINERS


class Sampler(models.TextChoices):
    TPE = "tpe", "Bayesian (TPE)"
    MUTATIONS = "mutations", "Mutations (Q-learning)"
    RANDOM = "random", "Random"
    GRID = "grid", "Grid"
    SEEDS = "seeds", "Seeds only"


class Direction(models.TextChoices):
    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


class SweepState(models.TextChoices):
    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"


class Pause(models.TextChoices):
    NONE = ""
    RUNG = "rung"  # it was not among the best at its rung
    STOP = "stop"  # its sweep was stopped


class SweepQuerySet(TeamQuerySet["Sweep"]):
    def counted(self) -> SweepQuerySet:
        """With how many trials each has, how many of them have finished and how many will go on."""
        return self.annotate(
            launched=Count("trials"),
            finished=Count("trials", filter=Q(trials__run__status=Status.FINISHED)),
            open=Count("trials", filter=Q(trials__run__status__in=OPEN)),
        )


class Sweep(TeamOwned):
    """``spec`` is what is searched around, with names where a launched spec has paths; ``space`` holds the axes (``lab.training.sweeps.space``)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="sweeps")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="sweeps")
    runner = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")  # for whom it launches: who started it last
    source = models.ForeignKey(Run, models.SET_NULL, null=True, related_name="sweeps")  # the run its spec was taken from
    name = models.CharField(max_length=100)
    spec = models.JSONField()
    space = models.JSONField(default=list)
    sampler = models.CharField(max_length=10, choices=Sampler.choices)
    metric = models.CharField(max_length=20)  # a key of lab.training.sweeps.scores.METRICS
    direction = models.CharField(max_length=10, choices=Direction.choices, default=Direction.MAXIMIZE)
    most_runs = models.PositiveSmallIntegerField()
    parallel = models.PositiveSmallIntegerField()
    halving = models.BooleanField(default=False)
    seed = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=10, choices=SweepState.choices, default=SweepState.RUNNING)
    reason = models.TextField(blank=True)  # why it stopped by itself
    forgiven = models.PositiveSmallIntegerField(default=0)  # failed trials it had when somebody continued it
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    objects = TeamManager.from_queryset(SweepQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(SweepQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        indexes = [
            models.Index(fields=["team", "-created_at"], name="sweep_newest"),
            models.Index(fields=["state"], condition=Q(state="running"), name="sweep_running"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def combinations(self) -> int | None:
        """Of a grid; any other space has no number of points."""
        return math.prod(len(axis.get("values", ())) for axis in self.space) if self.sampler == Sampler.GRID else None

    @property
    def planned(self) -> int:
        """How many trials it has in the end."""
        size = self.combinations
        return self.most_runs if size is None else min(self.most_runs, size)

    @property
    def rungs(self) -> list[int]:
        """The steps at which its trials are compared; none without halving."""
        if not self.halving:
            return []
        training = self.spec["training"]
        return list_rungs(training.get("max_steps", TRAINERS[training["trainer"]].model_fields["max_steps"].default))

    def in_order(self) -> list[Trial]:
        """Its trials with their runs."""
        return list(self.trials.select_related("run").defer("run__spec", "run__special_tokens", "run__notes").order_by("number"))


class Trial(TeamOwned):
    """Values that a sweep chose and the run that tries them. It outlives the run: without it a sweep would choose them again."""

    team_path = "sweep__team"

    sweep = models.ForeignKey(Sweep, models.CASCADE, related_name="trials")
    run = models.OneToOneField(Run, models.SET_NULL, null=True, related_name="trial")
    number = models.PositiveSmallIntegerField()  # from 0, in the order they were chosen
    values = models.JSONField()  # key of an axis -> value
    refusal = models.TextField(blank=True)  # why no run could be launched
    score = models.FloatField(null=True)  # of the finished run
    rung = models.PositiveSmallIntegerField(default=0)  # how many rungs it was promoted at
    rung_scores = models.JSONField(default=list)  # at each rung it has arrived at; null where nothing was measured
    pause = models.CharField(max_length=5, choices=Pause.choices, default=Pause.NONE, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sweep", "number"], name="trial_number")]

    def __str__(self) -> str:
        return f"trial {self.number + 1}"

    @property
    def status(self) -> str:
        """Of its run; "paused" where the sweep stopped it, "refused" and "deleted" where there is none."""
        if self.run is None:
            return "refused" if self.refusal else "deleted"
        return "paused" if self.pause and self.run.status == Status.STOPPED else self.run.status

    @property
    def is_open(self) -> bool:
        return self.run is not None and self.run.is_open

    @property
    def has_failed(self) -> bool:
        """It ended, will not go on by itself, and has no score."""
        return self.score is None and not self.is_open and self.status != "paused"
