"""What the labelling page asks of the server, in JSON."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST


@require_POST
def next_claims(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


@require_POST
def submit(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


@require_POST
def draft(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


@require_POST
def renew(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


@require_POST
def release(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


@require_POST
def undo(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404
