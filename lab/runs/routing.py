"""Websockets: the team's runs, and one run."""

from typing import Any

from django.urls import path

from lab.runs.consumers import RunConsumer, TeamConsumer

websocket_urlpatterns: list[Any] = [
    path("ws/runs/", TeamConsumer.as_asgi()),
    path("ws/runs/<uuid:run_id>/", RunConsumer.as_asgi()),
]
