"""What-if questions: stored rollouts put through another method."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models

from lab.accounts.models import Team
from lab.runs.models import Run


class ReplayStatus(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class Replay(models.Model):
    """One question and its answer. ``group`` null means every group of the step."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="replays")
    run = models.ForeignKey(Run, models.CASCADE, related_name="replays")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    step = models.PositiveIntegerField()
    group = models.PositiveIntegerField(null=True, db_column="group_index")
    base = models.JSONField()  # {"name", "config"}
    methods = models.JSONField(default=list)  # [{"name", "config"}]
    status = models.CharField(max_length=8, choices=ReplayStatus.choices, default=ReplayStatus.QUEUED)
    error = models.TextField(blank=True)
    result = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"], name="replay_newest")]

    def __str__(self) -> str:
        return f"what if step {self.step}"
