"""Who can train: the workers, what they have, and what they train now. It stands in runs because workers know nothing of runs."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_POST

from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.teams.accounts.roles import has_team_permission
from lab.training.runs.models import ACTIVE, Run
from lab.training.workers import listing
from lab.training.workers.draining import drain_worker, explain_drain_refusal
from lab.training.workers.machine_use import HOURS, read_worker_uses
from lab.training.workers.start_listing import list_queue_starts


def list_workers(request: LabRequest) -> HttpResponse:
    busy = {run.owner.split("/")[0]: run for run in Run.across_teams.filter(status__in=ACTIVE).only("owner", "number", "name", "status", "team_id")}
    rows: list[dict[str, Any]] = []
    asked = request.GET.get("hours", "")
    hours = int(asked) if asked in map(str, HOURS) else HOURS[0]
    workers = listing.list_recent_workers()
    uses = read_worker_uses(workers, hours)
    for worker in workers:
        run = busy.get(worker.name)
        own = run if run is not None and run.team_id == request.team.pk else None
        rows.append(
            {"worker": worker, "alive": worker.is_alive, "run": own, "busy_elsewhere": run is not None and own is None, "uses": uses.get(worker.pk)}
        )
    looks_after_workers = has_team_permission(request, "workers.drain") and not explain_drain_refusal(request.user, request.team)
    context = {
        "room": "workers",
        "rows": rows,
        "hours": hours,
        "offered_hours": HOURS,
        "alive": sum(row["alive"] and row["worker"].trains for row in rows),
        "waiting": Run.objects.of(request.team).waiting().count(),
        "may_drain": looks_after_workers,
        "queue_starts": list_queue_starts() if looks_after_workers else [],  # what a scheduler says is no business of other teams
        "started_queues": sorted(settings.WORKER_STARTS),
    }
    return TemplateResponse(request, "workers/list.html" + ("#workers" if wants_fragment(request) else ""), context)


@require_POST
def change_worker_drain(request: LabRequest) -> HttpResponse:
    """``worker`` is a name; ``act`` drain, or anything else to take runs again."""
    if refusal := explain_drain_refusal(request.user, request.team):
        raise PermissionDenied(refusal)
    name, drains = request.POST.get("worker", "").replace("\0", ""), request.POST.get("act") == "drain"
    changed = drain_worker(name, takes_runs=not drains, team=request.team)
    words = f"{name} finishes its run and takes no more." if drains else f"{name} takes runs again."
    messages.add_message(request, messages.SUCCESS if changed else messages.INFO, words)
    return redirect("workers")
