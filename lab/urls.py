"""All paths of the lab."""

from django.urls import URLPattern, URLResolver, include, path

from lab.alerts.routing import websocket_urlpatterns as inbox_sockets
from lab.lib.csp_reports import report
from lab.playground.routing import websocket_urlpatterns as playground_sockets
from lab.runs.routing import websocket_urlpatterns as run_sockets

__all__ = ["urlpatterns", "websocket_urlpatterns"]

websocket_urlpatterns = [*run_sockets, *inbox_sockets, *playground_sockets]
ROOMS: tuple[str, ...] = (
    "trajectories",
    "annotations",
    "browse",
    "reading",
    "atlas",
    "comparison",
    "replay",
    "doctor",
    "labels",
    "quality",
    "datasets",
    "loop",
)
ROOMS += ("people", "audit", "projects", "usage", "alerts", "policies", "playground", "operations", "api")
urlpatterns: list[URLPattern | URLResolver] = [
    path("csp-report/", report, name="csp-report"),
    path("", include("lab.accounts.urls")),
    path("", include("lab.runs.urls")),
    path("ablations/", include("lab.ablations.urls")),
    *(path("", include(f"lab.{room}.urls")) for room in ROOMS),
]
