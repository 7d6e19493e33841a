"""A team's rule on how long rollouts and their token arrays are kept."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamOwned
from lab.training.runs.models import TAG_LENGTH

KEEP_TAG = "keep"


class RolloutRule(TeamOwned):
    """Days count from when a run has ended; None keeps for ever. ``looked_at``: when the last night's round had ended, or the rule was saved."""

    team = models.OneToOneField(Team, models.CASCADE, related_name="rollout_rule")
    tokens_days = models.PositiveIntegerField(null=True)
    rollouts_days = models.PositiveIntegerField(null=True)
    keep_every = models.PositiveIntegerField(default=0)  # steps; 0: none stay for their step
    keep_tag = models.CharField(max_length=TAG_LENGTH, default=KEEP_TAG, blank=True)  # runs with it stay whole
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)
    looked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"retention of rollouts of {self.team}"

    @property
    def is_active(self) -> bool:
        return self.tokens_days is not None or self.rollouts_days is not None
