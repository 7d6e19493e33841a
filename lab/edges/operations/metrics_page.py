"""The address that Prometheus asks, with a token of the installation's own: it reads numbers of all teams, and nothing else is opened by it."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from lab.edges.operations import metrics


@login_not_required
@never_cache
def show_metrics(request: HttpRequest) -> HttpResponse:
    """Raises Http404 where no token is set, as for an address that is not there."""
    if not settings.METRICS_TOKEN:
        raise Http404
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not constant_time_compare(given.strip(), settings.METRICS_TOKEN):
        words = "Send LAB_METRICS_TOKEN in the header Authorization: Bearer …\n"
        return HttpResponse(
            words, status=401, content_type="text/plain; charset=utf-8", headers={"WWW-Authenticate": 'Bearer realm="Policy Lab metrics"'}
        )
    return HttpResponse(metrics.text.read(), content_type=CONTENT_TYPE_PLAIN_0_0_4)
