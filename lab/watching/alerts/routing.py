"""Websockets of the inbox."""

from typing import Any

from django.urls import path

from lab.watching.alerts.consumers import InboxConsumer

websocket_urlpatterns: list[Any] = [path("ws/inbox/<int:team_id>/", InboxConsumer.as_asgi(), name="ws-inbox")]
