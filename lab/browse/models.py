"""Views of the browser that people keep."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.accounts.models import Team


class SavedView(models.Model):
    """A browser's address under a name; seen by its owner, or by the whole team when shared."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="saved_views")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=80)
    query = models.TextField(blank=True)  # the query string, without the cursor
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "owner", "name"], name="saved_view_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
