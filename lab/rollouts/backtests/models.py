"""Backtests: a reward function scored on stored rollouts of a run. Only the verbs of Backtest write ``status``, each by one conditional UPDATE."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.rewards.models import RewardVersion
from lab.training.runs.models import Run

MOST_ROLLOUTS = 2000
SECONDS, BATCH_SECONDS = 900.0, 300.0  # of a whole backtest, of a batch
FORMAT = 1  # of ``result``; an answer in another one is not read
LOST_AFTER = timedelta(seconds=BATCH_SECONDS + 60)  # without a batch for so long its worker is gone
NAME_LENGTH = 100


class BacktestStatus(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class BacktestQuerySet(TeamQuerySet["Backtest"]):
    def lose(self) -> int:
        """Fails those whose worker is gone; how many they were."""
        gone = self.filter(status=BacktestStatus.RUNNING, beat_at__lt=Now() - LOST_AFTER)
        return gone.update(status=BacktestStatus.FAILED, error="The worker was lost. Run it again.", finished_at=Now())


class Backtest(TeamOwned):
    """``version`` is null for a draft that was not saved; ``definition`` is what was scored in any case. ``against``: the reward column that scores
    are compared with, empty for the total. Steps are inclusive.
    """

    binned_path = "run__binned_at"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="backtests")
    run = models.ForeignKey(Run, models.CASCADE, related_name="backtests")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    version = models.ForeignKey(RewardVersion, models.SET_NULL, null=True, related_name="backtests")
    name = models.CharField(max_length=NAME_LENGTH)
    definition = models.JSONField()
    first_step = models.PositiveIntegerField()
    last_step = models.PositiveIntegerField()
    against = models.CharField(max_length=200, blank=True)
    status = models.CharField(max_length=8, choices=BacktestStatus.choices, default=BacktestStatus.QUEUED)
    done = models.PositiveIntegerField(default=0)  # rollouts
    total = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)
    result = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    beat_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = TeamManager.from_queryset(BacktestQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(BacktestQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"], name="backtest_newest")]

    def __str__(self) -> str:
        return f"backtest of {self.name}"

    @property
    def readable(self) -> bool:
        """Whether there is an answer, and this version of the lab wrote it."""
        return self.result is not None and self.result.get("format") == FORMAT

    @property
    def is_open(self) -> bool:
        return self.status in (BacktestStatus.QUEUED, BacktestStatus.RUNNING)

    # Verbs: each returns whether it changed the row, so that of two callers exactly one acts.

    def _become(self, status: BacktestStatus, before: BacktestStatus, **fields: Any) -> bool:
        changed = Backtest.objects.same_row(self).filter(status=before).update(status=status, **fields) == 1
        self.refresh_from_db()
        return changed

    def claim(self) -> bool:
        return self._become(BacktestStatus.RUNNING, BacktestStatus.QUEUED, started_at=Now(), beat_at=Now(), done=0, error="")

    def beat(self, done: int, total: int) -> bool:
        running = Backtest.objects.same_row(self).filter(status=BacktestStatus.RUNNING)
        return running.update(done=done, total=total, beat_at=Now()) == 1

    def finish(self, result: dict[str, Any]) -> bool:
        return self._become(BacktestStatus.FINISHED, BacktestStatus.RUNNING, result=result, finished_at=Now())

    def fail(self, error: str) -> bool:
        return self._become(BacktestStatus.FAILED, BacktestStatus.RUNNING, error=error, finished_at=Now())

    def retry(self) -> bool:
        return self._become(BacktestStatus.QUEUED, BacktestStatus.FAILED, error="", done=0, started_at=None, finished_at=None)
