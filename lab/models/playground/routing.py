"""Websockets of the playground."""

from typing import Any

from django.urls import path

from lab.models.playground.consumers import SamplingConsumer

websocket_urlpatterns: list[Any] = [path("ws/playground/<uuid:sampling_id>/", SamplingConsumer.as_asgi(), name="ws-sampling")]
