"""Who can train: the workers, what they have, and what they train now. It stands in runs because workers know nothing of runs."""

from typing import Any

from django.http import HttpResponse
from django.template.response import TemplateResponse

from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.training.runs.models import ACTIVE, Run
from lab.training.workers import listing


def list_workers(request: LabRequest) -> HttpResponse:
    busy = {run.owner.split("/")[0]: run for run in Run.across_teams.filter(status__in=ACTIVE).only("owner", "number", "name", "status", "team_id")}
    rows: list[dict[str, Any]] = []
    for worker in listing.list_recent_workers():
        run = busy.get(worker.name)
        own = run if run is not None and run.team_id == request.team.pk else None
        rows.append({"worker": worker, "alive": worker.is_alive, "run": own, "busy_elsewhere": run is not None and own is None})
    alive = sum(row["alive"] and row["worker"].trains for row in rows)
    waiting = Run.objects.of(request.team).waiting().count()
    context = {"room": "workers", "rows": rows, "alive": alive, "waiting": waiting}
    return TemplateResponse(request, "workers/list.html" + ("#workers" if wants_fragment(request) else ""), context)
