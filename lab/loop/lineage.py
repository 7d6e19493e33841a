"""What came out of what."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe


@require_safe
def lineage(request: HttpRequest) -> HttpResponse:
    raise Http404
