"""The list of projects, and one project: its runs, queues and datasets."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.data.datasets.models import Dataset
from lab.labelling.labels.models import Queue
from lab.teams.accounts.models import Project, Team
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.training.runs.models import HEAVY, OPEN, Run

NEWEST = 8  # of each kind on a project's page
MOVABLE = (("runs", Run), ("queues", Queue), ("datasets", Dataset))


def annotate_project_counts(team: Team) -> QuerySet[Project]:
    """With how many runs, open runs, queues and datasets each has."""
    counts = {
        name: Coalesce(Subquery(count_of(model), output_field=IntegerField()), 0)  # joined, the counts would multiply
        for name, model in (("queue_count", Queue), ("dataset_count", Dataset))
    }
    counts["run_count"] = Coalesce(Subquery(count_of(Run, Q(binned_at=None)), output_field=IntegerField()), 0)
    still = count_of(Run, Q(status__in=OPEN))
    return Project.objects.of(team).annotate(**counts, open_count=Coalesce(Subquery(still, output_field=IntegerField()), 0))


def count_of(model: Any, narrowed: Q | None = None) -> Any:
    rows = model.objects.filter(narrowed or Q(), project=OuterRef("pk")).order_by().values("project")
    return rows.annotate(count=Count("pk")).values("count")


@require_safe
def list_projects(request: LabRequest) -> HttpResponse:
    """Projects at work by name; ``?archived=1`` those that were put away."""
    return render_project_list(request)


def render_project_list(request: LabRequest, values: dict[str, str] | None = None, errors: dict[str, str] | None = None) -> HttpResponse:
    archived = "archived" in request.GET
    projects = annotate_project_counts(request.team).filter(archived_at__isnull=not archived).select_related("created_by")
    context = {
        "room": "projects",
        "projects": projects.order_by(F("archived_at").desc(nulls_last=True), "name"),
        "archived": archived,
        "put_away": Project.objects.of(request.team).exclude(archived_at=None).count(),
        "may_manage": has_team_permission(request, "projects.manage"),
        "values": values or {},
        "errors": errors or {},
        "loose": {name: model.objects.filter(team=request.team, project=None).count() for name, model in MOVABLE},
    }
    return render(request, "projects/list.html", context, status=422 if errors else 200)


def project_of(request: LabRequest, project_id: int) -> Project:
    """Raises Http404 for another team's, and for a number that is no id."""
    return get_object_or_404(annotate_project_counts(request.team).select_related("created_by"), pk=project_id)


@require_safe
def show_project(request: LabRequest, project_id: int) -> HttpResponse:
    return render_project_page(request, project_of(request, project_id))


def render_project_page(
    request: LabRequest, project: Project, values: dict[str, str] | None = None, errors: dict[str, str] | None = None
) -> HttpResponse:
    context = {
        "room": "projects",
        "project": project,
        "runs": project.runs.listed().defer(*HEAVY).select_related("created_by").order_by("-number")[:NEWEST],
        "queues": project.queues.order_by("-created_at", "-pk")[:NEWEST],
        "datasets": project.datasets.order_by("-created_at", "-pk")[:NEWEST],
        "may_manage": has_team_permission(request, "projects.manage"),
        "values": values or {"name": project.name, "about": project.about},
        "errors": errors or {},
    }
    return render(request, "projects/project.html", context, status=422 if errors else 200)
