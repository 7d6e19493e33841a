"""What the rules found in a run: a page, and the same as a panel of the overview (``?part=panel``)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from lab.rollouts.doctor.collect import facts_of
from lab.rollouts.doctor.examine import sorted_out
from lab.rollouts.doctor.remedies import propose_methods
from lab.training.runs.header import build_run_header
from lab.training.runs.views.page import find_team_run


@require_safe
def run_doctor(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    facts = facts_of(run)
    examination = sorted_out(run, facts)
    context = {"run": run, "examination": examination}
    if request.GET.get("part") == "panel":
        return render(request, "doctor/panel.html", context)
    return render(request, "doctor/page.html", {**build_run_header(run, "doctor"), **context, "remedies": propose_methods(run, facts, examination)})
