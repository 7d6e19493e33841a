"""Datasets, their frozen versions and the rows in them, with where each row came from. A version is never changed; a label that changes later
flags the versions it is in (``Recall``) and leaves their bytes alone.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from lab.labelling.labels.models import Queue
from lab.teams.accounts.models import Project, Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet

USER = settings.AUTH_USER_MODEL


class Form(models.TextChoices):
    """TRL's dataset formats."""

    PREFERENCE = "preference", "Preference pairs: prompt, chosen, rejected"
    KTO = "kto", "Labelled answers: prompt, completion, label"
    COMPLETION = "completion", "Prompt and completion"
    STEPWISE = "stepwise", "Marked steps: prompt, completions, labels"
    PROMPT = "prompt", "Prompts with a reference answer: prompt, reference"


class Source(models.TextChoices):
    QUEUES = "queues"
    IMPORT = "import"
    TURNS = "turns"  # labels on turns of episodes
    TOOL = "tool"  # versions of other datasets, with a dataset tool


class Dataset(TeamOwned):
    """What people call a dataset: a name, where its rows come from, and the rule that the next version starts from."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="datasets")
    project = models.ForeignKey(Project, models.SET_NULL, null=True, related_name="datasets")
    name = models.CharField(max_length=100)
    form = models.CharField(max_length=12, choices=Form.choices, default=Form.PREFERENCE)
    source = models.CharField(max_length=8, choices=Source.choices, default=Source.QUEUES)
    queues = models.ManyToManyField(Queue, related_name="datasets")
    rule = models.JSONField(default=dict)  # lab.data.datasets.rules.DatasetRule
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"], name="dataset_newest")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_labelled(self) -> bool:
        """Whether its rows are made of labels: when those change, the same rule gives other rows."""
        return self.source in (Source.QUEUES, Source.TURNS)


class VersionState(models.TextChoices):
    QUEUED = "queued"
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


LOST_AFTER = timedelta(minutes=2)  # a build that has not shown progress for so long has lost its worker


class VersionQuerySet(TeamQuerySet["Version"]):
    def requeue(self) -> int:
        """Puts builds whose worker is gone back into the queue; how many. Nothing of them is kept before they are ready."""
        gone = self.filter(state=VersionState.BUILDING, beat_at__lt=Now() - LOST_AFTER)
        return gone.update(state=VersionState.QUEUED, done=0, beat_at=Now())


class Version(TeamOwned):
    """``digest``: SHA-256 over the bytes of its two files, train then test; the files are below the team's dataset folder."""

    team_path = "dataset__team"

    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=8, choices=VersionState.choices, default=VersionState.QUEUED)
    error = models.TextField(blank=True)
    done = models.PositiveIntegerField(default=0)  # progress of the building
    total = models.PositiveIntegerField(default=0)
    rule = models.JSONField(default=dict)  # complete, as frozen; with what a tool was to do (tool_plan.ToolPlan) under "tool"
    digest = models.CharField(max_length=64, blank=True)
    train_file = models.CharField(max_length=200, blank=True)  # names below datasets_of(team)
    test_file = models.CharField(max_length=200, blank=True)
    counts = models.JSONField(default=dict)  # {"train", "test", "left_out": {reason: n}, "cleaned": {…}}
    notes = models.TextField(blank=True)
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    beat_at = models.DateTimeField(null=True)  # when it was queued, or its build last showed progress

    objects = TeamManager.from_queryset(VersionQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(VersionQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="version_number")]
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"{self.dataset} v{self.number}"

    @property
    def is_open(self) -> bool:
        return self.state in (VersionState.QUEUED, VersionState.BUILDING)

    # Verbs: each returns whether it changed the row, so that of two callers exactly one acts.

    def _become(self, state: VersionState, before: tuple[VersionState, ...], **fields: Any) -> bool:
        fields = {"beat_at": Now(), **fields}
        changed = Version.objects.same_row(self).filter(state__in=before).update(state=state, **fields) == 1
        self.refresh_from_db()
        return changed

    def claim(self, total: int = 0) -> bool:
        return self._become(VersionState.BUILDING, (VersionState.QUEUED,), error="", done=0, total=total)

    def beat(self, done: int) -> bool:
        return Version.objects.same_row(self).filter(state=VersionState.BUILDING).update(done=done, beat_at=Now()) == 1

    def finish(self, **fields: Any) -> bool:
        return self._become(VersionState.READY, (VersionState.BUILDING,), finished_at=Now(), **fields)

    def fail(self, error: str, counts: dict[str, Any] | None = None) -> bool:
        fields = {"error": error, "finished_at": Now(), "counts": counts or {}}
        return self._become(VersionState.FAILED, (VersionState.QUEUED, VersionState.BUILDING), **fields)

    def retry(self) -> bool:
        return self._become(VersionState.QUEUED, (VersionState.FAILED,), error="", done=0, finished_at=None)

    def path(self, split: str = "train") -> Path:
        name = self.train_file if split == "train" else self.test_file
        return Path(settings.DATASETS_ROOT) / str(self.dataset.team_id) / name


class Row(TeamOwned):
    """One row of a version exactly as it is in the file, and where it came from."""

    team_path = "version__dataset__team"

    version = models.ForeignKey(Version, models.CASCADE, related_name="rows")
    place = models.PositiveIntegerField()  # line of its file, from 0
    split = models.CharField(max_length=5)  # train, test
    row = models.JSONField()  # TRL's columns, plus weight and margin where the rule gives them
    digest = models.CharField(max_length=64)  # of prompt and texts: the same row in two versions
    prompt = models.BigIntegerField(null=True)  # trajectories.Prompt
    rollouts = ArrayField(models.BigIntegerField(), default=list)  # chosen, rejected
    item = models.BigIntegerField(null=True)
    queue = models.BigIntegerField(null=True)
    labellers = ArrayField(models.BigIntegerField(), default=list)
    provenance = models.JSONField(
        default=dict
    )  # per side run number, step, checkpoint, sampler; strength, margin, votes, agreement, marks of steps and spans, line of an import
    suspect = models.JSONField(default=dict)  # what cleaning said: {"score", "by", "action"}

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version", "split", "place"], name="row_place")]
        indexes = [models.Index(fields=["version", "digest"], name="row_digest")]

    def __str__(self) -> str:
        return f"row {self.place} of {self.split}"


class RecallKind(models.TextChoices):
    LABELLER = "labeller"
    PROMPT = "prompt"
    QUEUE = "queue"
    RULE = "rule"


class Recall(TeamOwned):
    """Labels taken back. Versions with rows of them are flagged from then on, until it is undone; what was trained on those is flagged too."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="recalls")
    kind = models.CharField(max_length=8, choices=RecallKind.choices)
    labeller = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    prompt = models.BigIntegerField(null=True)
    queue = models.ForeignKey(Queue, models.SET_NULL, null=True, related_name="+")
    rule = models.JSONField(null=True)  # versions made under these settings (a part of Version.rule)
    reason = models.TextField()
    by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(auto_now_add=True)
    undone_at = models.DateTimeField(null=True)
    undone_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")

    class Meta:
        indexes = [models.Index(fields=["team", "-at"], name="recall_newest")]

    def __str__(self) -> str:
        return f"recall of a {self.kind}"
