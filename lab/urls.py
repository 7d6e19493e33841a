"""All paths of the lab."""

from typing import Any

from django.urls import URLPattern, URLResolver, include, path

from lab.accounts.views import health

urlpatterns: list[URLPattern | URLResolver] = [
    path("health/", health, name="health"),
    path("accounts/", include("allauth.urls")),
]

websocket_urlpatterns: list[Any] = []
