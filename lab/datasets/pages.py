"""Datasets and their versions."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST, require_safe


@require_safe
def datasets(request: HttpRequest) -> HttpResponse:
    raise Http404


def new(request: HttpRequest) -> HttpResponse:
    raise Http404


@require_safe
def dataset(request: HttpRequest, dataset_id: int) -> HttpResponse:
    raise Http404


@require_POST
def freeze(request: HttpRequest, dataset_id: int) -> HttpResponse:
    raise Http404


@require_safe
def version(request: HttpRequest, version_id: int) -> HttpResponse:
    raise Http404


@require_safe
def export(request: HttpRequest, version_id: int) -> HttpResponse:
    raise Http404


@require_safe
def diff(request: HttpRequest, version_id: int) -> HttpResponse:
    raise Http404
