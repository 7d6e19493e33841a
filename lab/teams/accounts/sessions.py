"""Where a person is signed in: seen at most once a minute, ended one by one or all together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial

from allauth.account.adapter import get_adapter
from allauth.usersessions.adapter import DefaultUserSessionsAdapter
from allauth.usersessions.models import UserSession
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models.functions import Now
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from lab.teams.accounts.models import User

SEEN_SECONDS = 60  # a session's "last seen" is at most so old; pages ask for much more often than that
TELL_SECONDS = 2.0
session_revoked = Signal()  # user, label: address and browser of the session that the person has ended
REMEMBERED = 10_000  # sessions whose last look this process remembers


def begin_session(user: User, backend: str) -> str:
    """The key of a new session of somebody who has signed in by ``backend``, without a request: for commands and tests."""
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = backend
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return str(session.session_key)


class SeenMiddleware:
    """Keeps the list of a person's sessions: browser, address, last seen. Costs a query or two a minute and session, not one for every request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.seen: dict[tuple[str, str, str], float] = {}

    def __call__(self, request: HttpRequest) -> HttpResponse:
        key = request.session.session_key
        if key and request.user.is_authenticated and self.due((key, request.META.get("REMOTE_ADDR", ""), request.headers.get("User-Agent", ""))):
            list_session(request, key)
            remember_seen(request.user.pk)
        return self.get_response(request)

    def due(self, visit: tuple[str, str, str]) -> bool:
        now = time.monotonic()
        if now - self.seen.get(visit, -SEEN_SECONDS) < SEEN_SECONDS:
            return False
        if len(self.seen) >= REMEMBERED:
            self.seen.clear()
        self.seen[visit] = now
        return True


def list_session(request: HttpRequest, key: str) -> None:
    """Puts the request's session into its person's list, or moves it up. As allauth's ``create_from_request``, in one statement instead of six."""
    session = UserSession(
        session_key=key,
        user=request.user,
        ip=get_adapter().get_client_ip(request),
        user_agent=request.headers.get("User-Agent", "")[: UserSession._meta.get_field("user_agent").max_length],
    )
    UserSession.objects.bulk_create(
        [session], update_conflicts=True, unique_fields=["session_key"], update_fields=["user", "ip", "user_agent", "last_seen_at"]
    )


def remember_seen(user_id: int) -> None:
    """The person is here now, in a browser or by a token. What lists call "last seen" stays when their sessions are deleted."""
    User.objects.filter(pk=user_id).update(seen_at=Now())


def end_sessions(user: User, *, keep: str | None = None) -> int:
    """Signs the person out everywhere but in the session with the key ``keep``, open pages included; returns how many sessions that ended."""
    ended = Session.objects.filter(session_key__in=[key for key in list_session_keys(user) if key != keep]).delete()[1].get("sessions.Session", 0)
    UserSession.objects.filter(user=user).exclude(session_key=keep or "").delete()
    transaction.on_commit(lambda: look_again(user))
    return ended


class SessionRevocationAdapter(DefaultUserSessionsAdapter):  # type: ignore[misc]
    """Sessions a person ends on the page of their sessions: their open pages learn it at once."""

    def end_sessions(self, sessions: Iterable[UserSession]) -> None:
        for session in sessions:
            user, label = session.user, f"{session.ip} {session.user_agent}"
            session.end()
            session_revoked.send(User, user=user, label=label)
            transaction.on_commit(partial(look_again, user))


def list_session_keys(user: User) -> list[str]:
    """Keys of the person's live sessions, also of those that no request has brought into the list yet."""
    listed = UserSession.objects.all()
    unlisted = Session.objects.filter(expire_date__gt=timezone.now()).exclude(session_key__in=listed.values("session_key"))
    keys = [session.session_key for session in unlisted if str(session.get_decoded().get(SESSION_KEY, "")) == str(user.pk)]
    return [*keys, *listed.filter(user=user).values_list("session_key", flat=True)]


def look_again(user: User) -> None:
    """Makes every open socket of the person ask at once whether it may stay; with Redis away they ask within seconds by themselves."""

    async def tell() -> None:
        await asyncio.wait_for(get_channel_layer().group_send(f"person-{user.pk}", {"type": "access.changed"}), TELL_SECONDS)

    try:
        async_to_sync(tell)()
    except Exception:  # whatever the driver raises: the sessions are ended, which is what counts
        return
