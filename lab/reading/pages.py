"""One rollout, one group, one prompt."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse


def group(request: HttpRequest, run_id: Any, phase: str, step: int, group: int) -> HttpResponse:
    raise Http404


def prompt(request: HttpRequest, prompt_id: int) -> HttpResponse:
    raise Http404
