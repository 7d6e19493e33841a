"""Downloads of what an attempt ran in: everything as JSON, its packages for pip."""

from __future__ import annotations

import json
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from lab.lib.numbers import MAX_INTEGER
from lab.training.runs.environment import build_environment_json, write_requirements
from lab.training.runs.models import Attempt
from lab.training.runs.views.page import find_team_run


def find_attempt(request: HttpRequest, run_id: Any, number: int) -> Attempt:
    """An attempt of the team's run, or 404."""
    run = find_team_run(request, run_id)
    return get_object_or_404(run.attempts.select_related("packages", "run"), number=min(number, MAX_INTEGER))


@require_safe
def download_environment(request: HttpRequest, run_id: Any, attempt: int) -> HttpResponse:
    found = find_attempt(request, run_id, attempt)
    body = json.dumps({"run": found.run.number, **build_environment_json(found)}, indent=2, ensure_ascii=False)
    return answer_with_file(body, "application/json", f"run-{found.run.number}-attempt-{found.number}-environment.json")


@require_safe
def download_requirements(request: HttpRequest, run_id: Any, attempt: int) -> HttpResponse:
    found = find_attempt(request, run_id, attempt)
    if found.packages is None:
        raise Http404("The packages of this attempt were not recorded.")
    return answer_with_file(write_requirements(found), "text/plain; charset=utf-8", f"run-{found.run.number}-attempt-{found.number}-requirements.txt")


def answer_with_file(body: str, kind: str, name: str) -> HttpResponse:
    """``name`` is made by the lab alone."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return HttpResponse(body, content_type=kind, headers=headers)
