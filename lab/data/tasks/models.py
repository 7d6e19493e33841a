"""Tasks that a team made in the browser, and their versions. A version is a read-only file with a hash (``trainers/contract/task_files.py``)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from lab.teams.accounts.models import Project, Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet

USER = settings.AUTH_USER_MODEL
NAME_LENGTH, NOTE_LENGTH = 90, 500  # of a name " v1000" has to fit into a run's task as well
FOLDER = "tasks"  # below a team's datasets: what stands there is no dataset that a run may name


class Task(TeamOwned):
    """``binned_at``: deleted, and restorable for LAB_BIN_DAYS."""

    binned_path = "binned_at"

    team = models.ForeignKey(Team, models.CASCADE, related_name="tasks")
    project = models.ForeignKey(Project, models.SET_NULL, null=True, related_name="tasks")
    name = models.CharField(max_length=NAME_LENGTH)
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now_add=True)  # when its newest version was made
    binned_at = models.DateTimeField(null=True)
    binned_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="task_name_in_team")]
        indexes = [models.Index(fields=["team", "-changed_at"], name="task_newest")]

    def __str__(self) -> str:
        return self.name

    @property
    def newest(self) -> TaskVersion | None:
        return next(iter(self.versions.all()), None)


class TaskVersion(TeamOwned):
    """``definition``: the file's first line. ``plan``: what its columns became (``rows.RowPlan``). ``source``: where the rows came from."""

    team_path = "task__team"
    binned_path = "task__binned_at"

    task = models.ForeignKey(Task, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    definition = models.JSONField()
    plan = models.JSONField()
    source = models.JSONField()  # kind, name, file (below the team's tasks), file_kind, sha256, size; of a dataset its version, of a hub its id
    counts = models.JSONField()  # train, heldout, pairs, skipped, repeated, demonstrations, references
    file = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()
    note = models.CharField(max_length=NOTE_LENGTH, blank=True)
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "number"], name="task_version_number")]
        indexes = [models.Index(fields=["sha256"], name="task_version_sha256")]
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"{self.task} v{self.number}"

    @property
    def path(self) -> Path:
        return find_task_folder(self.task.team_id) / self.file


def find_task_folder(team_id: int) -> Path:
    return Path(settings.DATASETS_ROOT) / str(team_id) / FOLDER


class FetchState(models.TextChoices):
    QUEUED = "queued"
    FETCHING = "fetching"
    READY = "ready"
    FAILED = "failed"


LOST_AFTER = timedelta(minutes=2)  # a fetch that has not shown progress for so long has lost its worker


class FetchQuerySet(TeamQuerySet["Fetch"]):
    def requeue(self) -> int:
        """Puts fetches whose worker is gone back into the queue; how many."""
        return self.filter(state=FetchState.FETCHING, beat_at__lt=Now() - LOST_AFTER).update(state=FetchState.QUEUED, done=0, beat_at=Now())


class Fetch(TeamOwned):
    """Rows that a worker gets from elsewhere, and keeps as an upload: a dataset of the hub, or a generator. Forgotten after a day."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="fetches")
    user = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    kind = models.CharField(max_length=8)  # hub, gym
    settings = models.JSONField()
    state = models.CharField(max_length=8, choices=FetchState.choices, default=FetchState.QUEUED)
    done = models.PositiveIntegerField(default=0)  # rows
    error = models.TextField(blank=True)
    token = models.CharField(max_length=32, blank=True)  # of the upload
    about = models.JSONField(default=dict)  # what exactly was fetched: the commit of a hub's dataset, the version of a package
    created_at = models.DateTimeField(auto_now_add=True)
    beat_at = models.DateTimeField(null=True)

    objects = TeamManager.from_queryset(FetchQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(FetchQuerySet)()  # type: ignore[misc,assignment]

    def __str__(self) -> str:
        return f"fetch of {self.settings.get('name', self.kind)}"

    @property
    def is_open(self) -> bool:
        return self.state in (FetchState.QUEUED, FetchState.FETCHING)

    def become(self, state: FetchState, before: FetchState, **fields: Any) -> bool:
        """Whether it changed the row, so that of two workers exactly one acts."""
        changed = Fetch.objects.same_row(self).filter(state=before).update(state=state, beat_at=Now(), **fields) == 1
        self.refresh_from_db()
        return changed

    def beat(self, done: int) -> bool:
        return Fetch.objects.same_row(self).filter(state=FetchState.FETCHING).update(done=done, beat_at=Now()) == 1
