"""A trained run against where it started."""

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe


@require_safe
def run_wins(request: HttpRequest, run_id: UUID) -> HttpResponse:
    raise Http404
