"""What the rules found in a run: a page, and the same as a panel of the overview (``?part=panel``)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from lab.doctor.examine import examine
from lab.runs.header import header
from lab.runs.views.page import run_of


@require_safe
def run_doctor(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = run_of(request, run_id)
    context = {"run": run, "examination": examine(run)}
    if request.GET.get("part") == "panel":
        return render(request, "doctor/panel.html", context)
    return render(request, "doctor/page.html", {**header(run, "doctor"), **context})
