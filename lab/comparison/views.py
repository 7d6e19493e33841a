"""Runs beside each other, and two of their rollouts."""

from django.http import Http404, HttpRequest, HttpResponse


def compare(request: HttpRequest) -> HttpResponse:
    raise Http404


def compare_rollouts(request: HttpRequest) -> HttpResponse:
    raise Http404
