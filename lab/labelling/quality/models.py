"""A reviewer's word on a judgement. Nobody reviews their own."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.labelling.labels.models import Judgement
from lab.teams.accounts.scope import TeamOwned


class Review(TeamOwned):
    team_path = "judgement__queue__team"

    judgement = models.ForeignKey(Judgement, models.CASCADE, related_name="reviews")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    accepted = models.BooleanField()
    comment = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return "accepted" if self.accepted else "sent back"
