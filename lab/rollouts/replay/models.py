"""What-if questions: stored rollouts put through another recipe. Only the verbs of Replay write ``status``, each by one conditional UPDATE."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.runs.models import Run

SECONDS = 300.0  # an answer may take so long
FORMAT = 1  # of ``result``; an answer in another one is not read
LOST_AFTER = timedelta(seconds=SECONDS + 30)  # its worker is gone: it would have said that the time is over


class ReplayStatus(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class ReplayQuerySet(TeamQuerySet["Replay"]):
    def lose(self) -> int:
        """Fails those whose worker is gone; how many they were."""
        gone = self.filter(status=ReplayStatus.RUNNING, started_at__lt=Now() - LOST_AFTER)
        reason = "The worker was lost. Run it again."
        return gone.update(status=ReplayStatus.FAILED, error=reason, finished_at=Now())


class Replay(TeamOwned):
    """One question and its answer. ``group`` null means every group of the step."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="replays")
    run = models.ForeignKey(Run, models.CASCADE, related_name="replays")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    step = models.PositiveIntegerField()
    group = models.PositiveIntegerField(null=True, db_column="group_index")
    base = models.JSONField()  # {"name", "config"}
    methods = models.JSONField(default=list)  # [{"name", "config"}]
    weights = models.JSONField(default=dict)  # reward function -> weight, where it is not the run's
    status = models.CharField(max_length=8, choices=ReplayStatus.choices, default=ReplayStatus.QUEUED)
    error = models.TextField(blank=True)
    problems = models.JSONField(default=list)  # what was refused: [{"field", "message", "fix"}]
    result = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = TeamManager.from_queryset(ReplayQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(ReplayQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        indexes = [
            models.Index(fields=["team", "-created_at"], name="replay_newest"),
            models.Index(fields=["run", "-created_at"], name="replay_of_run"),
        ]

    def __str__(self) -> str:
        return f"what if step {self.step}"

    @property
    def readable(self) -> bool:
        """Whether there is an answer, and this version of the lab wrote it."""
        return self.result is not None and self.result.get("format") == FORMAT

    @property
    def is_open(self) -> bool:
        return self.status in (ReplayStatus.QUEUED, ReplayStatus.RUNNING)

    # Verbs: each returns whether it changed the row, so that of two callers exactly one acts.

    def _become(self, status: ReplayStatus, before: tuple[ReplayStatus, ...], **fields: Any) -> bool:
        changed = Replay.objects.same_row(self).filter(status__in=before).update(status=status, **fields) == 1
        self.refresh_from_db()
        return changed

    def claim(self) -> bool:
        return self._become(ReplayStatus.RUNNING, (ReplayStatus.QUEUED,), started_at=Now(), error="", problems=[])

    def finish(self, result: dict[str, Any]) -> bool:
        return self._become(ReplayStatus.FINISHED, (ReplayStatus.RUNNING,), result=result, finished_at=Now())

    def fail(self, error: str, problems: list[dict[str, Any]] | None = None) -> bool:
        return self._become(ReplayStatus.FAILED, (ReplayStatus.RUNNING,), error=error, problems=problems or [], finished_at=Now())

    def retry(self) -> bool:
        return self._become(ReplayStatus.QUEUED, (ReplayStatus.FAILED,), error="", problems=[], started_at=None, finished_at=None)
