"""Which reports a list asks for."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet

from lab.teams.accounts import projects
from lab.teams.accounts.models import Team
from lab.watching.reports.models import Report, ReportVersion

LONGEST_SEARCH = 100  # characters; longer text is cut


def select_reports(team: Team, words: str = "", *, archived: bool = False, project: str = "") -> QuerySet[Report]:
    """By title, author or a word of the newest version; ``project`` is a cleaned filter (``clean_project_filter``)."""
    rows = Report.objects.of(team).filter(projects.build_project_condition(project), archived_at__isnull=not archived)
    for word in words.split():
        newest = ReportVersion.objects.filter(report=OuterRef("pk"), number=OuterRef("number"), text__icontains=word)
        rows = rows.filter(Q(title__icontains=word) | Q(author__email__icontains=word) | Exists(newest))
    return rows.select_related("author", "project").order_by("-updated_at", "-pk")
