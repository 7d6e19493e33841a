"""Requests that are too large end before they are read: the size that is announced is looked at, and what arrives is counted.

Django stores a whole body on the disk before any view runs, so the limit stands before Django. More than the usual size is for people who are
signed in and for access tokens that let somebody in; whether a request has either is looked up only once it turns out to be that large.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.db import Error

from lab.lib.numbers import parse_whole_number
from lab.lib.proxies import App, Scope

TITLES = {400: "The request cannot be read", 413: "The request is too large", 503: "Service unavailable"}
TEAM = re.compile(r"^/t/[-\w]{1,50}(?=/)", re.ASCII)


class BodyLimit:
    """``most``: bytes for beginnings of paths (without the team); ``usual`` for all others, and for everybody whom ``admits`` does not let in."""

    def __init__(self, app: App, most: Mapping[str, int], usual: int, admits: Callable[[Scope], Awaitable[bool]]) -> None:
        self.app, self.most, self.usual, self.admits = app, most, usual, admits

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        length = parse_whole_number(announced.decode("latin-1"))
        if length is None:
            await refuse_request_body(scope, send, 400, "The header Content-Length is not a number.")
            return
        problem = await self.problem(scope, length)
        if problem is not None:
            await refuse_request_body(scope, send, *problem)
        else:
            await self.counted(scope, receive, send, length)

    def largest(self, scope: Scope) -> int:
        """Bytes that the address takes from anybody at all."""
        path = TEAM.sub("", scope["path"])
        return next((most for beginning, most in self.most.items() if path.startswith(beginning)), self.usual)

    async def problem(self, scope: Scope, size: int) -> tuple[int, str] | None:
        """Why a body of ``size`` bytes is not taken, as status and words."""
        if size <= self.usual:
            return None
        limit = self.largest(scope)
        if size > limit:
            return 413, too_large(limit)
        try:
            admitted = await self.admits(scope)
        except Error:  # whatever keeps the database from saying who asks
            return 503, "The lab cannot check your sign-in at the moment. Nothing was changed. Try again in a minute."
        return None if admitted else (413, f"{too_large(self.usual)} For more, sign in or send a valid access token.")

    async def counted(self, scope: Scope, receive: Any, send: Any, accepted: int) -> None:
        """Passes the body on; past the limit the application is told that the client has gone, and the client why.

        ``accepted``: bytes that were announced and may come; a body of unannounced size is looked at once it is larger than the usual.
        """
        arrived, answered = 0, False
        over: tuple[int, str] | None = None
        allowed = max(accepted, self.usual)

        async def counting() -> Any:
            nonlocal arrived, over, allowed
            message = await receive()
            if message["type"] == "http.request":
                arrived += len(message.get("body", b""))
                if arrived > allowed:
                    over = await self.problem(scope, arrived)
                    allowed = self.largest(scope)
                if over:
                    return {"type": "http.disconnect"}
            return message

        async def sending(message: Any) -> None:
            nonlocal answered
            if not over:
                answered = True
                await send(message)

        await self.app(scope, counting, sending)
        if over and not answered:
            await refuse_request_body(scope, send, *over)


def too_large(limit: int) -> str:
    size = f"{limit / 1_000_000:g} MB"
    return f"The request exceeds the size limit ({size}). Nothing was changed. Go back and send less, or split the file."


async def refuse_request_body(scope: Scope, send: Any, status: int, words: str) -> None:
    kind, body = b"text/plain; charset=utf-8", words
    if scope["path"].startswith("/api/"):  # a program asks: the API's own form of a problem
        kind = b"application/problem+json"
        body = json.dumps({"type": "/api/#size", "title": TITLES[status], "status": status, "detail": words, "errors": [], "request": ""})
    headers = [(b"content-type", kind), (b"x-content-type-options", b"nosniff"), (b"connection", b"close")]
    headers += [(b"cache-control", b"no-store"), (b"content-security-policy", b"default-src 'none'")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
