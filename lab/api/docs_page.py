"""The description of the API: for programs as OpenAPI, for people as a page without scripts, both made from the operations themselves."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from lab.accounts.addresses import absolute
from lab.api import described, openapi, problems
from lab.api.base import BODY


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    context = {
        "room": "tokens",
        "nouns": described.nouns(openapi.document()),
        "root": absolute(openapi.ROOT),
        "about": described.pieces(openapi.ABOUT),
        "problems": [(kind, status, title) for kind, (status, title) in problems.TITLES.items()],
        "body_kb": BODY // 1000,
        "rate": settings.API_RATE,
    }
    return TemplateResponse(request, "api/docs.html", context)


@login_not_required
@require_safe
def openapi_json(request: HttpRequest) -> HttpResponse:
    return JsonResponse(openapi.document())
