"""Websockets are opened by the lab's own pages only: a browser sends cookies with a handshake from any page, and no CSRF token."""

from __future__ import annotations

from typing import Any

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.utils.http import is_same_domain

from lab.lib.proxies import App, Scope

SCHEMES = {"ws": "http", "wss": "https"}


class OwnOriginMiddleware:
    """Refuses (403) a handshake whose Host is not one of LAB_HOSTS, or whose Origin is missing or not the lab's: scheme, host and port."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        opened = self.app if is_own_origin(scope) else WebsocketDenier()
        await opened(scope, receive, send)


def is_own_origin(scope: Scope) -> bool:
    hosts, origins = ([value.decode("latin-1").lower() for name, value in scope["headers"] if name == header] for header in (b"host", b"origin"))
    if len(hosts) != 1 or len(origins) != 1:
        return False
    [host], [origin] = hosts, origins
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    return origin == f"{SCHEMES.get(scope.get('scheme', 'ws'), 'http')}://{host}" or is_trusted_origin(origin)


def is_trusted_origin(origin: str) -> bool:
    """Whether LAB_URL or LAB_ORIGINS name it, the latter also as ``https://*.example.org``."""
    scheme, _, host = origin.partition("://")
    for trusted in (settings.LAB_URL, *settings.CSRF_TRUSTED_ORIGINS):
        trusted_scheme, _, rest = trusted.lower().partition("://")
        name = rest.split("/")[0]
        if scheme == trusted_scheme and (is_same_domain(host, name.removeprefix("*")) if name.startswith("*.") else host == name):
            return True
    return False
