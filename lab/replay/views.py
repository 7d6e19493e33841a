"""What another method would have done with stored rollouts."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse


def what_if(request: HttpRequest, run_id: Any) -> HttpResponse:
    raise Http404


def replay(request: HttpRequest, replay_id: Any) -> HttpResponse:
    raise Http404
