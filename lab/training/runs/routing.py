"""Websockets: the team's runs, and one run."""

from typing import Any

from django.urls import path

from lab.training.runs.consumers import RunConsumer, TeamConsumer

websocket_urlpatterns: list[Any] = [
    path("ws/teams/<int:team_id>/", TeamConsumer.as_asgi(), name="ws-runs"),
    path("ws/runs/<uuid:run_id>/", RunConsumer.as_asgi(), name="ws-run"),
]
