"""What people say about a rollout."""

from django.http import Http404, HttpRequest, HttpResponse


def annotations(request: HttpRequest, rollout_id: int) -> HttpResponse:
    raise Http404
