"""Vectors of rollouts, who made them, and the jobs that make and cluster them. Only the verbs of EmbeddingJob write ``status``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.runs.models import Checkpoint

SECONDS = 1800.0  # a job may embed for so long; what it has is kept for the next one
LOST_AFTER = timedelta(minutes=10)  # without a sign of the worker; a chunk of long completions takes a large policy minutes
FORMAT = 1  # of ``result``; clusters in another one are not shown


class Source(models.TextChoices):
    POLICY = "policy"
    ENCODER = "encoder"


class Embedder(TeamOwned):
    """What makes vectors that can be compared: a checkpoint, or a sentence encoder of LAB_POLICIES, as its files were (``key``)."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="embedders")
    kind = models.CharField(max_length=8, choices=Source.choices)
    name = models.CharField(max_length=300)
    key = models.CharField(max_length=64)  # of the checkpoint or folder and its files' sizes and times
    checkpoint = models.ForeignKey(Checkpoint, models.SET_NULL, null=True, related_name="embedders")
    folder = models.CharField(max_length=255, blank=True)  # an encoder's, by its name below LAB_POLICIES
    dimension = models.PositiveIntegerField(default=0)  # 0 until it has made a vector
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "key"], name="embedder_once")]

    def __str__(self) -> str:
        return self.name


class Embedding(TeamOwned):
    """A rollout's vector of length 1, (D,) float16 in little-endian bytes."""

    team_path = "rollout__run__team"
    binned_path = "rollout__run__binned_at"

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="embeddings", db_index=False)
    embedder = models.ForeignKey(Embedder, models.CASCADE, related_name="embeddings", db_index=False)
    vector = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rollout", "embedder"], name="embedding_once")]
        indexes = [models.Index(fields=["embedder", "-rollout"], name="embedding_newest")]

    def __str__(self) -> str:
        return f"vector of rollout {self.rollout_id}"


class JobKind(models.TextChoices):
    CLUSTERS = "clusters"
    SIMILAR = "similar"  # a rollout and a sample of its run, to compare it with


class JobStatus(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


OPEN = (JobStatus.QUEUED, JobStatus.RUNNING)
ENDED = (JobStatus.FINISHED, JobStatus.STOPPED, JobStatus.FAILED)


class EmbeddingJobQuerySet(TeamQuerySet["EmbeddingJob"]):
    def lose(self) -> int:
        """Fails those whose worker is gone; how many they were."""
        gone = self.filter(status=JobStatus.RUNNING, beat__lt=Now() - LOST_AFTER)
        return gone.update(status=JobStatus.FAILED, error="The worker was lost. Run it again: vectors so far are kept.", finished_at=Now())


class EmbeddingJob(TeamOwned):
    """Embeds a sample of a selection, and clusters it (``kind``). ``embedder`` None: the worker chooses a policy of the runs in the sample."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="embedding_jobs")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    kind = models.CharField(max_length=8, choices=JobKind.choices)
    name = models.CharField(max_length=120, blank=True)
    query = models.TextField(blank=True)  # the selection as a query string of the browser
    rollout = models.ForeignKey(Rollout, models.CASCADE, null=True, related_name="embedding_jobs")  # what is compared
    embedder = models.ForeignKey(Embedder, models.CASCADE, null=True, related_name="jobs")
    wanted = models.PositiveSmallIntegerField(null=True)  # clusters; None: by silhouette
    most = models.PositiveIntegerField()  # rollouts that are drawn
    seed = models.PositiveIntegerField(default=0)
    status = models.CharField(max_length=8, choices=JobStatus.choices, default=JobStatus.QUEUED)
    error = models.TextField(blank=True)
    selected = models.PositiveBigIntegerField(null=True)  # rollouts of the selection
    sampled = models.PositiveIntegerField(null=True)  # of those, drawn
    done = models.PositiveIntegerField(default=0)  # of those, with a vector
    cut = models.PositiveIntegerField(default=0)  # of those embedded by this job, longer than what is read
    result = models.JSONField(null=True)  # of clusters: {"format", "silhouettes", "words", "explained"}
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    beat = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = TeamManager.from_queryset(EmbeddingJobQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(EmbeddingJobQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        indexes = [models.Index(fields=["team", "kind", "-created_at"], name="embedding_job_newest")]

    def __str__(self) -> str:
        return self.name or f"rollouts like {self.rollout_id}"

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def readable(self) -> bool:
        """Whether there are clusters, and this version of the lab made them."""
        return self.result is not None and self.result.get("format") == FORMAT

    # Verbs: each returns whether it changed the row, so that of two callers exactly one acts. A row that is deleted meanwhile does not change.

    def _become(self, status: JobStatus, before: tuple[JobStatus, ...], **fields: Any) -> bool:
        changed = EmbeddingJob.objects.same_row(self).filter(status__in=before).update(status=status, **fields) == 1
        if changed:
            self.refresh_from_db()
        return changed

    def claim(self) -> bool:
        return self._become(JobStatus.RUNNING, (JobStatus.QUEUED,), started_at=Now(), beat=Now(), error="")

    def beats(self, **fields: Any) -> bool:
        """The worker lives and has come so far; False when nobody wants the answer any more."""
        return EmbeddingJob.objects.same_row(self).filter(status=JobStatus.RUNNING).update(beat=Now(), **fields) == 1

    def finish(self, **fields: Any) -> bool:
        return self._become(JobStatus.FINISHED, (JobStatus.RUNNING,), finished_at=Now(), **fields)

    def fail(self, error: str) -> bool:
        return self._become(JobStatus.FAILED, OPEN, error=error[:1000], finished_at=Now())

    def stop(self) -> bool:
        return self._become(JobStatus.STOPPED, OPEN, finished_at=Now())

    def retry(self) -> bool:
        fresh = {"error": "", "done": 0, "cut": 0, "started_at": None, "finished_at": None}
        return self._become(JobStatus.QUEUED, (JobStatus.FAILED, JobStatus.STOPPED), **fresh)


class ClusterMember(TeamOwned):
    """A rollout in a clustering: its cluster, counted from 1, the largest first; how far from the centre it is; its place on the map."""

    team_path = "job__team"
    binned_path = "rollout__run__binned_at"

    job = models.ForeignKey(EmbeddingJob, models.CASCADE, related_name="members", db_index=False)
    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="clusters")
    cluster = models.PositiveSmallIntegerField()
    distance = models.FloatField()
    x = models.FloatField()
    y = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "cluster", "rollout"], name="cluster_member_once")]

    def __str__(self) -> str:
        return f"rollout {self.rollout_id} in cluster {self.cluster}"
