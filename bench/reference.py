"""What the benchmarks compare with: the lab's web application with one address more, behind the same middleware, for the least a page can do.

GET asks one indexed query and renders one row; POST inserts one row besides. Machines differ and their speed drifts, so a view's time is told as
a ratio to this one, asked in turns within the same run. With TIMES in the environment the time of every answer is written there (``timed``).
"""

from __future__ import annotations

import os
import uuid

if "TIMES" in os.environ:
    from bench.timed import application
else:
    from lab.asgi import application

from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.urls import path

from lab import urls
from lab.teams.accounts import permissions
from lab.training.runs.models import Run
from lab.watching.alerts.models import Notice

__all__ = ["application"]

ADDRESS = "/bench/row/"
ROW = engines["django"].from_string(
    "<table><tr><th>#{{ run.number }}</th><td>{{ run.name }}</td><td>{{ run.status }}</td><td>{{ run.created_at|date:'Y-m-d H:i' }}</td></tr></table>"
)


def show_row(request: HttpRequest) -> HttpResponse:
    run = Run.objects.of(request.team).get(number=1)  # type: ignore[attr-defined]
    if request.method == "POST":
        Notice.objects.create(team=request.team, user=request.user, kind="bench", key=str(uuid.uuid4()), subject=run.name)  # type: ignore[attr-defined,misc]
    return HttpResponse(ROW.render({"run": run}, request))


urls.urlpatterns.append(path("bench/row/", show_row, name="bench-row"))
permissions.ROUTES |= permissions.make_read_write_access("bench-row", ask="lab.enter")
