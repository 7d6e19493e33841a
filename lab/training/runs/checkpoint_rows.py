"""What a run saved, as rows: where it lies below the run folder, and whether the store has it; and what shall go from there."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from lab.teams.accounts.scope import TeamOwned

PROBLEM_LENGTH = 300


class Checkpoint(TeamOwned):
    """A place on the disk to resume from (``final`` False) or an exported policy (``final`` True)."""

    team_path = "run__team"
    binned_path = "run__binned_at"

    run = models.ForeignKey("runs.Run", models.CASCADE, related_name="checkpoints")
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    path = models.CharField(max_length=300)  # relative to the run folder
    bytes = models.BigIntegerField()
    final = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    stored_at = models.DateTimeField(null=True)  # since when the store (LAB_STORE) has all its files; null: it has not
    store_problem = models.CharField(max_length=PROBLEM_LENGTH, blank=True, default="", db_default="")  # why the last try to store it failed

    forgotten = models.BooleanField(default=False, db_default=False)  # somebody deleted its files: no machine stores those that it still has

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "path", "step"], name="checkpoint_once")]
        ordering = ["-step"]

    def __str__(self) -> str:
        return self.path


class StoreDeletion(models.Model):
    """``name``: below it everything goes. No object of a team: the team may be gone already."""

    name = models.CharField(max_length=500)
    asked_at = models.DateTimeField(db_default=Now())
    done_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["asked_at"], condition=models.Q(done_at=None), name="store_deletion_due")]

    def __str__(self) -> str:
        return self.name
