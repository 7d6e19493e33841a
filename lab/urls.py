"""All paths of the lab."""

from django.urls import URLPattern, URLResolver, include, path

from lab.lib.csp_reports import receive_csp_report
from lab.models.branches.routing import websocket_urlpatterns as branch_sockets
from lab.models.playground.routing import websocket_urlpatterns as playground_sockets
from lab.training.runs.routing import websocket_urlpatterns as run_sockets
from lab.watching.alerts.routing import websocket_urlpatterns as inbox_sockets

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns", "websocket_urlpatterns"]

handler400, handler403 = "lab.error_pages.bad_request", "lab.error_pages.permission_denied"
handler404, handler500 = "lab.error_pages.page_not_found", "lab.error_pages.server_error"

websocket_urlpatterns = [*run_sockets, *inbox_sockets, *playground_sockets, *branch_sockets]
ROOMS = (
    *("rollouts.trajectories", "rollouts.annotations", "rollouts.browse", "rollouts.reading", "rollouts.atlas", "rollouts.comparison"),
    *("rollouts.replay", "rollouts.backtests", "rollouts.doctor"),
    *("labelling.labels", "labelling.quality", "data.datasets", "data.tasks", "data.loop", "teams.people", "teams.audit", "data.projects"),
    *("watching.usage", "watching.retention", "watching.queue", "watching.alerts", "watching.reports"),
    *("models.policies", "models.playground", "models.branches", "models.embeddings", "models.bin", "edges.operations"),
)
urlpatterns: list[URLPattern | URLResolver] = [
    path("csp-report/", receive_csp_report, name="csp-report"),
    path("", include("lab.edges.api.urls")),  # before the pages: programs ask more often than people, and addresses are tried in turn
    path("", include("lab.teams.accounts.urls")),
    path("", include("lab.training.runs.urls")),
    path("ablations/", include("lab.training.ablations.urls")),
    path("sweeps/", include("lab.training.sweeps.urls")),
    path("", include("lab.training.edits.urls")),
    path("", include("lab.training.rewards.urls")),
    *(path("", include(f"lab.{room}.urls")) for room in ROOMS),
]
