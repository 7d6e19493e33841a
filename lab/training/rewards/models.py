"""Reward functions of a team and their versions. A version never changes; what a run or a task uses of one is a copy in its spec."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamOwned

USER = settings.AUTH_USER_MODEL
NAME_LENGTH, NOTE_LENGTH = 90, 500


class RewardFunction(TeamOwned):
    team = models.ForeignKey(Team, models.CASCADE, related_name="reward_functions")
    name = models.CharField(max_length=NAME_LENGTH)
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now_add=True)  # when its newest version was made
    archived_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="reward_name_in_team")]
        indexes = [models.Index(fields=["team", "-changed_at"], name="reward_newest")]

    def __str__(self) -> str:
        return self.name

    @property
    def newest(self) -> RewardVersion:
        """Every function has a version: both are made in one transaction."""
        return next(iter(self.versions.all()))


class RewardVersion(TeamOwned):
    """``definition``: as ``trainers.contract.reward_definitions`` reads it, complete in itself."""

    team_path = "function__team"

    function = models.ForeignKey(RewardFunction, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    definition = models.JSONField()
    note = models.CharField(max_length=NOTE_LENGTH, blank=True)
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["function", "number"], name="reward_version_number")]
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"{self.function} v{self.number}"
