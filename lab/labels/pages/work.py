"""The page people label on."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe


@require_safe
def work(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404
