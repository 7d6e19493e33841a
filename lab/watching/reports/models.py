"""Reports of a team and their versions. A version is never changed: every save adds one."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from lab.teams.accounts.models import Project, Team
from lab.teams.accounts.scope import TeamOwned

TITLE_LENGTH, MESSAGE_LENGTH = 120, 200
TEXT_LENGTH = 100_000  # characters


class Report(TeamOwned):
    """``number`` is that of its newest version; 0 for a moment, while it is made."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="reports")
    project = models.ForeignKey(Project, models.SET_NULL, null=True, related_name="reports")
    title = models.CharField(max_length=TITLE_LENGTH)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="reports")
    number = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())  # when its newest version was saved
    archived_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["team", "-updated_at"], name="report_newest")]

    def __str__(self) -> str:
        return self.title


class ReportVersion(TeamOwned):
    """The Markdown of a report as somebody saved it."""

    team_path = "report__team"

    report = models.ForeignKey(Report, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    text = models.TextField(blank=True)
    message = models.CharField(max_length=MESSAGE_LENGTH, blank=True)  # what was changed, in its author's words
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="report_versions")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["report", "number"], name="report_version_once")]
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"version {self.number}"
