"""Stop, kill and resume. The verbs are on Run; asking twice, or too late, changes nothing and says so."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from lab.training.runs import live
from lab.training.runs.header import build_run_header
from lab.training.runs.launch import enqueue_run
from lab.training.runs.models import Run, Status
from lab.training.runs.resumption import find_resume_objection
from lab.training.runs.views.page import find_team_run, read_tab


@require_POST
def stop_run(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    changed = run.request_stop()
    message = "Stopped before training." if run.status == Status.STOPPED else "Stopping: the run finishes its step and saves a checkpoint."
    return render_action_answer(request, run, changed, message)


@require_POST
def kill_run(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    changed = run.is_active and run.request_stop(kill=True)
    return render_action_answer(request, run, changed, "Killing the trainer without saving.")


@require_POST
def resume_run(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    changed = run.resume()
    if changed:
        enqueue_run(run)
    return render_action_answer(request, run, changed, "Queued again; the run continues from its last checkpoint.")


def render_action_answer(request: HttpRequest, run: Run, changed: bool, message: str) -> HttpResponse:
    """The new header for htmx, the run page for a plain form. What changed is told to every open page."""
    if changed:
        live.publish_state(run)
    else:
        message = find_resume_objection(run) or f"Nothing was changed: run #{run.number} is {run.status}."
    return answer_with_header(request, run, message, good=changed)


def answer_with_header(request: HttpRequest, run: Run, message: str, *, good: bool) -> HttpResponse:
    """The header with ``message`` for htmx; for a plain form the run's page, which shows it."""
    if not request.htmx:  # type: ignore[attr-defined]
        messages.add_message(request, messages.SUCCESS if good else messages.INFO, message)
        return redirect("run", run_id=run.pk)
    response = render(request, "runs/run_header.html", build_run_header(run, read_tab(request)))
    response["HX-Trigger"] = json.dumps({"lab:said": {"text": message, "tone": "success" if good else "info"}})
    return response
