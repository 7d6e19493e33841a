"""From a dataset version to the next run."""

from django.http import Http404, HttpRequest, HttpResponse


def train(request: HttpRequest, version_id: int) -> HttpResponse:
    raise Http404
