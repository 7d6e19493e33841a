"""What the API remembers: answers to requests that may be sent twice."""

from __future__ import annotations

from django.db import models

from lab.teams.accounts.models import ApiToken
from lab.teams.accounts.scope import TeamOwned


class Answered(TeamOwned):
    """A request with an Idempotency-Key, and what it made. Kept for a day."""

    team_path = "token__team"

    token = models.ForeignKey(ApiToken, models.CASCADE, related_name="+")
    operation = models.CharField(max_length=40)  # stands for method and path
    key = models.CharField(max_length=100)
    digest = models.CharField(max_length=64)  # SHA-256 of the body: the same key with another body is a mistake
    made = models.JSONField(default=list)  # ids of what was made
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["token", "operation", "key"], name="answered_once")]
        indexes = [models.Index(fields=["created_at"], name="answered_oldest")]

    def __str__(self) -> str:
        return f"{self.operation} {self.key}"
