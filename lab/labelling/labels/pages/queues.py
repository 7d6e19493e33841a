"""The list of queues: what the person can label now, then everything the team has."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from lab.labelling.labels import listing
from lab.labelling.labels.models import Kind, Queue, QueueStatus
from lab.labelling.labels.people import open_to
from lab.teams.accounts import projects
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission

SHOWN = 50  # queues of a page
MINE = 20  # queues to label that stand on top


@require_safe
def show_queue_list(request: LabRequest) -> HttpResponse:
    leads = has_team_permission(request, "label.lead")
    seen = open_to(request.team, request.user, leads).order_by("-created_at")
    chosen = listing.QueueFilter.read(request.GET.dict(), QueueStatus.values, Kind.values, request.team)
    queues = seen
    if chosen.status:
        queues = queues.filter(status=chosen.status)
    if chosen.kind:
        queues = queues.filter(kind=chosen.kind)
    queues = queues.filter(projects.build_project_condition(chosen.project))
    if chosen.words:
        queues = queues.filter(name__icontains=chosen.words)
    page = Paginator(queues, SHOWN).get_page(request.GET.get("page"))
    annotates = has_team_permission(request, "label.work")
    first: list[Queue] = list(seen.filter(status=QueueStatus.OPEN)[:SHOWN])
    to_label = [row for row in listing.build_queue_rows(first, request.user, annotates) if row.to_label]
    to_label.sort(key=lambda row: (not row.returned, row.queue.due is None, row.queue.due, -row.queue.pk))
    context = {
        "room": "label",
        "leads": leads,
        "to_label": to_label[:MINE],
        "rows": listing.build_queue_rows(list(page), request.user, annotates),
        "page": page,
        "filter": chosen,
        "statuses": QueueStatus.values,
        "projects": projects.list_project_choices(request.team, chosen.project) if has_team_permission(request, "runs.read") else [],
        "kinds": Kind.choices,
        "any_queues": seen.exists(),
        "annotates": annotates,
    }
    return TemplateResponse(request, "labels/queues.html", context)
