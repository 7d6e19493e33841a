"""Samplings: one prompt, one or two checkpoints, and what they wrote; and what every question to a checkpoint has, whatever room asks it.

Only the verbs of SamplerQuestion write ``status``.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from lab.labelling.labels.models import Queue
from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.runs.models import Checkpoint

SECONDS = 300.0  # all sides together may take so long
LOST_AFTER = timedelta(seconds=30)  # without a sign of the worker


class SamplingStatus(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


OPEN = (SamplingStatus.QUEUED, SamplingStatus.RUNNING)


class QuestionQuerySet(TeamQuerySet[Any]):
    def lose(self) -> int:
        """Fails those whose worker is gone; how many they were."""
        gone = self.filter(status=SamplingStatus.RUNNING, beat__lt=Now() - LOST_AFTER)
        return gone.update(status=SamplingStatus.FAILED, error="The worker was lost. Try again.", finished_at=Now())


class SamplerQuestion(TeamOwned):
    """What a worker's sampling process answers: who waits for it is told by its status."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    status = models.CharField(max_length=8, choices=SamplingStatus.choices, default=SamplingStatus.QUEUED)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    beat = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = TeamManager.from_queryset(QuestionQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(QuestionQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        abstract = True

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    # Verbs: each returns whether it changed the row, so that of two callers exactly one acts.

    def _own_row(self) -> Any:
        rows: Any = type(self).objects
        return rows.same_row(self)

    def _become(self, status: SamplingStatus, before: tuple[SamplingStatus, ...], **fields: Any) -> bool:
        changed: bool = self._own_row().filter(status__in=before).update(status=status, **fields) == 1
        self.refresh_from_db()
        return changed

    def claim(self) -> bool:
        now = Now()
        return self._become(SamplingStatus.RUNNING, (SamplingStatus.QUEUED,), started_at=now, beat=now)

    def beats(self) -> bool:
        """The worker lives; False when nobody wants the answer any more."""
        return bool(self._own_row().filter(status=SamplingStatus.RUNNING).update(beat=Now()) == 1)

    def finish(self) -> bool:
        return self._become(SamplingStatus.FINISHED, (SamplingStatus.RUNNING,), finished_at=Now())

    def fail(self, error: str) -> bool:
        return self._become(SamplingStatus.FAILED, OPEN, error=error[:1000], finished_at=Now())

    def stop(self) -> bool:
        return self._become(SamplingStatus.STOPPED, OPEN, finished_at=Now())


class WrittenCompletion(TeamOwned):
    """One completion of T tokens, as far as it is written. Arrays as ``trainers.contract.arrays`` packs them."""

    number = models.PositiveSmallIntegerField()
    text = models.TextField(blank=True)
    finish_reason = models.CharField(max_length=10, blank=True)
    ids = models.BinaryField(default=b"")
    lengths = models.BinaryField(default=b"")
    logprobs = models.BinaryField(default=b"")
    entropies = models.BinaryField(default=b"")
    tokens = models.PositiveIntegerField(default=0)
    rollout = models.BigIntegerField(null=True)  # the stored rollout it became when it went to a queue

    class Meta:
        abstract = True


class Sampling(SamplerQuestion):
    """What was asked. ``sides`` names the checkpoints as they were called then; their rows may be deleted later."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="samplings")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    prompt = models.JSONField()  # [{"role", "content"}]
    count = models.PositiveSmallIntegerField(default=1)
    temperature = models.FloatField(default=1.0)
    top_p = models.FloatField(default=1.0)
    max_tokens = models.PositiveIntegerField(default=256)
    seed = models.PositiveIntegerField(default=0)
    queue = models.ForeignKey(Queue, models.SET_NULL, null=True, related_name="+")  # which the samples went to

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"], name="sampling_newest")]

    def __str__(self) -> str:
        return f"sampling of {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def question(self) -> str:
        """The last message of the prompt."""
        return str(self.prompt[-1]["content"]) if self.prompt else ""


class Side(TeamOwned):
    """One of the checkpoints of a sampling, in the order shown."""

    team_path = "sampling__team"

    sampling = models.ForeignKey(Sampling, models.CASCADE, related_name="sides")
    place = models.PositiveSmallIntegerField()
    checkpoint = models.ForeignKey(Checkpoint, models.SET_NULL, null=True, related_name="+")
    vector = models.ForeignKey(Checkpoint, models.SET_NULL, null=True, related_name="+")  # beside whose files the steering vector is that is added
    alpha = models.FloatField(default=0.0, db_default=0.0)  # times the vector; 0 adds nothing
    label = models.CharField(max_length=200)
    special_tokens = models.JSONField(default=dict)  # id -> text
    device = models.CharField(max_length=50, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sampling", "place"], name="sampling_side")]
        ordering = ["place"]

    def __str__(self) -> str:
        return self.label

    @property
    def is_steered(self) -> bool:
        """Whether a vector was asked for, also where its run has been deleted since."""
        return self.vector_id is not None or self.alpha != 0


class Sample(WrittenCompletion):
    """One completion of a side."""

    team_path = "side__sampling__team"

    side = models.ForeignKey(Side, models.CASCADE, related_name="samples")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["side", "number"], name="sample_of_side")]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.side} sample {self.number}"
