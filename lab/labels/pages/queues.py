"""The list of queues: what the person can label now, then everything the team has."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from lab.accounts import projects
from lab.accounts.roles import may
from lab.labels import listing
from lab.labels.models import Kind, Queue, QueueStatus
from lab.labels.people import open_to
from lab.runs.views.request import LabRequest

SHOWN = 50  # queues of a page
MINE = 20  # queues to label that stand on top


@require_safe
def queues(request: LabRequest) -> HttpResponse:
    leads = may(request, "label.lead")
    seen = open_to(request.team, request.user, leads).order_by("-created_at")
    chosen = listing.Filter.read(request.GET.dict(), QueueStatus.values, Kind.values, request.team)
    found = seen
    if chosen.status:
        found = found.filter(status=chosen.status)
    if chosen.kind:
        found = found.filter(kind=chosen.kind)
    found = found.filter(projects.condition(chosen.project))
    if chosen.words:
        found = found.filter(name__icontains=chosen.words)
    page = Paginator(found, SHOWN).get_page(request.GET.get("page"))
    annotates = may(request, "label.work")
    first: list[Queue] = list(seen.filter(status=QueueStatus.OPEN)[:SHOWN])
    to_label = [row for row in listing.rows(first, request.user, annotates) if row.to_label]
    to_label.sort(key=lambda row: (not row.returned, row.queue.due is None, row.queue.due, -row.queue.pk))
    context = {
        "room": "label",
        "leads": leads,
        "to_label": to_label[:MINE],
        "rows": listing.rows(list(page), request.user, annotates),
        "page": page,
        "filter": chosen,
        "statuses": QueueStatus.values,
        "projects": projects.choices(request.team, chosen.project) if may(request, "runs.read") else [],
        "kinds": Kind.choices,
        "any_queues": seen.exists(),
        "annotates": annotates,
    }
    return TemplateResponse(request, "labels/queues.html", context)
