"""How far the labels of a queue can be trusted, and what to do where they cannot."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST, require_safe


@require_safe
def quality(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


@require_safe
def conflicts(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


@require_safe
def item(request: HttpRequest, item_id: int) -> HttpResponse:
    raise Http404


@require_POST
def adjudicate(request: HttpRequest, item_id: int) -> HttpResponse:
    raise Http404


@require_safe
def review(request: HttpRequest, queue_id: int) -> HttpResponse:
    raise Http404


@require_POST
def judge_judgement(request: HttpRequest, judgement_id: int) -> HttpResponse:
    raise Http404
