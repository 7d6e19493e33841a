"""The description of the API: for programs as OpenAPI, for people as a page without scripts, both made from the operations themselves."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from lab.edges.api import openapi, openapi_words, problems
from lab.edges.api.base import BODY
from lab.edges.api.client_pages import build_client_url
from lab.lib.client_wheel import load_client_wheel
from lab.teams.accounts.addresses import build_absolute_url


@require_safe
def show_api_docs(request: HttpRequest) -> HttpResponse:
    """The index of all operations; those of ``?tag=`` in full. All of them in full were 600 kB."""
    nouns = openapi_words.group_operations(openapi.build_openapi_document())
    context = {
        "room": "tokens",
        "nouns": nouns,
        "shown": next((noun for noun in nouns if noun.slug == request.GET.get("tag")), None),
        "root": build_absolute_url(openapi.ROOT),
        "about": openapi_words.split_code_spans(openapi.ABOUT),
        "problems": [(kind, status, title) for kind, (status, title) in problems.TITLES.items()],
        "body_kb": BODY // 1000,
        "lab_url": settings.LAB_URL,
        "client_url": build_client_url(load_client_wheel()),
        "rate": settings.API_RATE,
    }
    return TemplateResponse(request, "api/docs.html", context)


@login_not_required
@require_safe
def openapi_json(request: HttpRequest) -> HttpResponse:
    return JsonResponse(openapi.build_openapi_document())
