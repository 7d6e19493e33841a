"""Headers that every answer carries, static files and errors included."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse

from trainers.contract.frame_stack import call_with_frame_room

EVERYWHERE = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": (
        "accelerometer=(), autoplay=(), camera=(), display-capture=(), encrypted-media=(), fullscreen=(self), geolocation=(), gyroscope=(), "
        "magnetometer=(), microphone=(), midi=(), payment=(), usb=(), clipboard-read=(), clipboard-write=(self), "
        "publickey-credentials-get=(self), publickey-credentials-create=(self)"
    ),
}
# Names of addresses whose pages hold what must not lie in a browser's cache: passwords, codes, tokens shown once, the audit log.
NEVER_KEPT = ("account_", "mfa_", "usersessions_", "socialaccount_", "admin:", "setup", "token", "team", "audit", "invit", "member", "api-")
NO_STORE, PRIVATE = "no-store, private", "private, no-cache"


class SecurityHeadersMiddleware:
    """The first of all: what later ones answer by themselves passes through it too. A thread answers a request below this call."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = call_with_frame_room(self.get_response, request)
        for name, value in EVERYWHERE.items():
            response.headers.setdefault(name, value)
        if "Cache-Control" not in response.headers and (kept := NO_STORE if response.status_code >= 500 else kept_for(request)):
            response.headers["Cache-Control"] = kept
        return response


def kept_for(request: HttpRequest) -> str:
    """How a browser may keep an answer: not at all what is secret, nobody but the person's browser what is behind a sign-in."""
    match = getattr(request, "resolver_match", None)
    if match is not None and match.view_name.startswith(NEVER_KEPT):
        return NO_STORE
    session = getattr(request, "session", None)  # looked at only where the request has read it: no answer costs a query more
    return PRIVATE if session is not None and session.accessed and SESSION_KEY in session else ""
