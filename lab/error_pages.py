"""What is answered for an address that is none, a refusal and a mistake: a page or, below /api/, problem JSON. Named in urls.py."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponseBase
from django.views import defaults

from lab.edges.api.problems import ApiProblem, render_problem
from lab.lib.busy_answers import build_busy_response
from lab.lib.database_limits import describe_database_trouble

API = "/api/"


def asks_the_api(request: HttpRequest) -> bool:
    """Also with a team in its address, which the API has not."""
    return request.path_info.startswith(API)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if asks_the_api(request):
        return render_problem(request, ApiProblem("malformed", "The request cannot be read as it was sent."))
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if asks_the_api(request):
        return render_problem(request, ApiProblem("permission", str(exception) or "The token's role does not allow this."))
    return defaults.permission_denied(request, exception)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if asks_the_api(request):
        return render_problem(request, ApiProblem("missing", "Unknown API address; see /api/v1/openapi.json"))
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Called while the exception is handled. A database that cannot answer now is no mistake of the lab: 503."""
    trouble = describe_database_trouble(sys.exc_info()[1])
    if asks_the_api(request):
        kind = ApiProblem("broken", "This is not caused by your request. Try again.")
        return render_problem(request, kind if trouble is None else ApiProblem("away", trouble.words, headers={"Retry-After": str(trouble.seconds)}))
    return defaults.server_error(request) if trouble is None else build_busy_response(request, 503, trouble.words, trouble.seconds)
