"""What looks wrong with a run."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse


def run_doctor(request: HttpRequest, run_id: Any) -> HttpResponse:
    raise Http404
