"""Views of the browser that people keep, and the words of prompts."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models

from lab.rollouts.trajectories.models import Prompt
from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamOwned


class SavedView(TeamOwned):
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


class PromptWords(TeamOwned):
    """The words of a prompt's last user message for full-text search, added with the words of the first rollout that answers it.

    A table of its own: an index on the prompts would slow the ingest down.
    """

    team_path = "prompt__team"

    prompt = models.OneToOneField(Prompt, models.CASCADE, primary_key=True, related_name="words", db_constraint=False)
    words = SearchVectorField()

    class Meta:
        indexes = [GinIndex(fields=["words"], name="prompt_words")]

    def __str__(self) -> str:
        return f"words of prompt {self.prompt_id}"
