"""Groups of running runs into queues."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST


def run_feeds(request: HttpRequest, run_id: UUID) -> HttpResponse:
    raise Http404


@require_POST
def stop_feed(request: HttpRequest, feed_id: int) -> HttpResponse:
    raise Http404
