"""What people changed about a run while it trained, and runs that go on without such a change."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.teams.accounts.scope import TeamOwned
from lab.training.runs.models import Run


class EditState(models.TextChoices):
    PENDING = "pending"  # the trainer has not reported all of it yet
    APPLIED = "applied"
    REFUSED = "refused"  # by the trainer
    WITHDRAWN = "withdrawn"
    MISSED = "missed", "not applied"  # the run finished first


class RunEdit(TeamOwned):
    """One edit: setting -> value, by the names of ``trainers.contract.edits``. What the trainer reports decides its state, never who asked.

    ``before``: the values it replaces; when it was asked for those that would, then those that the trainer reported. ``steps``: the first step that
    trained with each setting; settings of one edit may hold from different boundaries.
    """

    team_path = "run__team"
    binned_path = "run__binned_at"

    run = models.ForeignKey(Run, models.CASCADE, related_name="edits")
    key = models.CharField(max_length=64)  # by which the trainer knows it
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")  # null: a service token, or the run folder
    reason = models.TextField(blank=True)
    changes = models.JSONField()
    before = models.JSONField(default=dict)
    steps = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=EditState.choices, default=EditState.PENDING)
    refusal = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True)  # when its line was written into the run folder
    withdrawn_at = models.DateTimeField(null=True)  # when somebody asked to take it back
    withdrawal_sent = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="edit_once")]
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"edit {self.pk} of {self.run}"

    @property
    def first_step(self) -> int | None:
        """The first step that trained with any of it."""
        return min(self.steps.values(), default=None)

    @property
    def may_be_withdrawn(self) -> bool:
        return self.state == EditState.PENDING and not self.steps and self.withdrawn_at is None


class RunFork(TeamOwned):
    """A run that repeats another without one of its edits, from what the other had at ``from_step``; 0: from the beginning."""

    team_path = "run__team"
    binned_path = "run__binned_at"

    run = models.OneToOneField(Run, models.CASCADE, related_name="fork")
    edit = models.ForeignKey(RunEdit, models.SET_NULL, null=True, related_name="forks")
    from_step = models.PositiveIntegerField()
    until_step = models.PositiveIntegerField()  # the last step that both runs train alike

    def __str__(self) -> str:
        return f"fork from step {self.from_step}"
