"""Where in its answers, and when, the policy of a run was undecided."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse


def run_atlas(request: HttpRequest, run_id: Any) -> HttpResponse:
    raise Http404
