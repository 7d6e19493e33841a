"""The usage page, and what launching shows of it."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from lab.runs.views.request import LabRequest
from lab.usage import quotas


@require_safe
def index(request: LabRequest) -> HttpResponse:
    return render(request, "usage/page.html", {"room": "usage", "standing": quotas.standing(request.team)})


@require_safe
def left(request: LabRequest) -> HttpResponse:
    """A piece of the launch pages: what the team has left."""
    found = quotas.standing(request.team)
    held = quotas.why(found, "gpu", found.gpu_hours.limit is not None and quotas.takes_gpus("gpu"))
    return render(request, "usage/left.html", {"standing": found, "held": held})
