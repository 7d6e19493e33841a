"""Browsers that a person has signed in with before: guesses from elsewhere do not lock them out.

A signed cookie names the browser and the people who have signed in there. It opens nothing: it gives the browser a count of attempts of its own
(OWASP, "Slow Down Online Guessing Attacks with Device Cookies"). It is bound to the password's hash, so a new password forgets all browsers but
the one that chose it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare, salted_hmac

from lab.teams.accounts.models import User

SALT = "lab.accounts.devices"  # of signed cookies, wherever this module lies
MAX_AGE = 400 * 24 * 3600  # seconds; browsers keep no cookie for longer
MOST_PEOPLE = 8  # of one browser; the one who has not come for the longest is forgotten first


def cookie_name() -> str:
    return "__Host-device" if settings.TLS else "device"


def read_cookie(request: HttpRequest) -> dict[str, Any]:
    """``{"id": the browser's name, "people": {primary key: mark}}``; empty without a cookie of ours."""
    try:
        value = signing.loads(request.COOKIES.get(cookie_name(), ""), salt=SALT, max_age=MAX_AGE)
    except signing.BadSignature:
        return {}
    return value if isinstance(value, dict) and isinstance(value.get("people"), dict) and value.get("id") else {}


def mark_of(user: User) -> str:
    """Changes with the password."""
    return salted_hmac(SALT, f"{user.pk}:{user.password}", algorithm="sha256").hexdigest()[:32]


def known_device(request: HttpRequest, user: User | None) -> str:
    """The name of the browser if this person has signed in with it, empty if not."""
    if user is None:
        return ""
    if getattr(request, "user", None) == user and request.session.session_key:  # signed in, and asked for the password once more
        return f"session {salted_hmac(SALT, request.session.session_key).hexdigest()}"
    cookie = read_cookie(request)
    mark = str(cookie.get("people", {}).get(str(user.pk), ""))
    return str(cookie["id"]) if mark and constant_time_compare(mark, mark_of(user)) else ""


def remember_device(request: HttpRequest, user: User) -> None:
    """Has the answer to this request carry the cookie."""
    request.device_of = user  # type: ignore[attr-defined]


def write_cookie(request: HttpRequest, response: HttpResponse, user: User) -> None:
    cookie = read_cookie(request)
    people = {key: mark for key, mark in cookie.get("people", {}).items() if key != str(user.pk)}
    people = dict(list(people.items())[1 - MOST_PEOPLE :]) | {str(user.pk): mark_of(user)}
    value = signing.dumps({"id": cookie.get("id") or secrets.token_urlsafe(16), "people": people}, salt=SALT)
    response.set_cookie(cookie_name(), value, max_age=MAX_AGE, secure=settings.TLS, httponly=True, samesite="Lax")


class DeviceMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        user: User | None = getattr(request, "device_of", None)
        if user is not None:
            write_cookie(request, response, user)
        return response
