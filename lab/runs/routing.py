"""Websockets: the team's runs, and one run."""

from typing import Any

websocket_urlpatterns: list[Any] = []
