"""Websockets of branches."""

from typing import Any

from django.urls import path

from lab.models.branches.consumers import BranchConsumer

websocket_urlpatterns: list[Any] = [path("ws/branches/<uuid:branch_id>/", BranchConsumer.as_asgi(), name="ws-branch")]
