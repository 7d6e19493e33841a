"""Whether a request that Django has not read yet brings something that lets somebody in: a session of a person, or an access token."""

from __future__ import annotations

from channels.auth import get_user
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.http.cookie import parse_cookie

from lab.edges.api.tokens import find_usable_token
from lab.lib.proxies import Scope


async def is_admitted(scope: Scope) -> bool:
    """Two queries for a session, three for a token, none for a request without either."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"cookie", b"authorization")}
    key = parse_cookie(headers.get(b"cookie", "")).get(settings.SESSION_COOKIE_NAME, "")
    if key.isascii() and key.isalnum() and (await get_user({"session": SessionStore(key)})).is_authenticated:
        return True
    scheme, _, secret = headers.get(b"authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        return False
    return await database_sync_to_async(find_usable_token)(secret.strip()) is not None
