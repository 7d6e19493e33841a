"""Taking labels back."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST, require_safe


@require_safe
def recalls(request: HttpRequest) -> HttpResponse:
    raise Http404


@require_POST
def recall(request: HttpRequest) -> HttpResponse:
    raise Http404


@require_POST
def undo_recall(request: HttpRequest, recall_id: int) -> HttpResponse:
    raise Http404
