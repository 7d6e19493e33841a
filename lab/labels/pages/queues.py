"""Lists, makes and manages queues."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe


@require_safe
def queues(request: HttpRequest) -> HttpResponse:
    raise Http404


def new(request: HttpRequest) -> HttpResponse:
    raise Http404


@require_safe
def queue(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


def settings(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404
