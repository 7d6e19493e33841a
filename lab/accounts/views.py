"""Health of the web process; pages about accounts."""

from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import HttpRequest, JsonResponse


@login_not_required
def health(request: HttpRequest) -> JsonResponse:
    """For load balancers and container health checks: answers only when the database does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return JsonResponse({"status": "ok"})


@login_not_required
def setup(request: HttpRequest, token: str) -> JsonResponse:
    raise NotImplementedError
