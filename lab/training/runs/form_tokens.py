"""A form that is sent twice acts once: the token in it is remembered in the session, under a lock of the database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from django.db import connection, transaction
from django.http import HttpRequest

KEY = "acted"
REMEMBERED = 30  # tokens of a session


def act_once_per_token(request: HttpRequest, token: str, act: Callable[[], str]) -> str:
    """The URL that ``act`` returned for this token: now, or the first time. Two requests at the same moment wait for each other."""
    session = request.session
    lock = int.from_bytes(hashlib.sha256(f"{session.session_key}/{token}".encode()).digest()[:8], "big", signed=True)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [lock])
        fresh = type(session)(session.session_key)  # what is committed now, not what this request began with
        done: dict[str, str] = fresh.get(KEY, {})
        if token in done:
            return done[token]
        url = act()
        kept = dict(list(done.items())[-REMEMBERED + 1 :])
        session[KEY] = {**kept, token: url}
        session.save()
    return url
