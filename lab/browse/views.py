"""The browser over rollouts of one run, several, or the whole team."""

from django.http import Http404, HttpRequest, HttpResponse


def rollouts(request: HttpRequest) -> HttpResponse:
    raise Http404
