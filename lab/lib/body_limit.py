"""Requests that are too large end before they are read: the size that is announced is looked at, and what arrives is counted.

Django stores a whole body on the disk before any view runs, so the limit stands before Django.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lab.lib.proxies import App, Scope

TEAM = re.compile(r"^/t/[-\w]{1,50}(?=/)", re.ASCII)
CREDENTIALS = (b"cookie", b"authorization")


class BodyLimit:
    """``most``: bytes for beginnings of paths (without the team); ``usual`` for all others and for everybody who brings no credentials."""

    def __init__(self, app: App, most: Mapping[str, int], usual: int) -> None:
        self.app, self.most, self.usual = app, most, usual

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit(scope)
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit():
            await refuse(scope, send, 400, "The header Content-Length is not a number.")
        elif int(announced) > limit:
            await refuse(scope, send, 413, too_large(limit))
        else:
            await self.counted(scope, receive, send, limit)

    def limit(self, scope: Scope) -> int:
        if not any(name in CREDENTIALS for name, _ in scope["headers"]):
            return self.usual
        path = TEAM.sub("", scope["path"])
        return next((size for beginning, size in self.most.items() if path.startswith(beginning)), self.usual)

    async def counted(self, scope: Scope, receive: Any, send: Any, limit: int) -> None:
        """Passes the body on; past the limit the application is told that the client has gone, and the client why."""
        arrived, over, answered = 0, False, False

        async def counting() -> Any:
            nonlocal arrived, over
            message = await receive()
            if message["type"] == "http.request":
                arrived += len(message.get("body", b""))
                if arrived > limit:
                    over = True
                    return {"type": "http.disconnect"}
            return message

        async def sending(message: Any) -> None:
            nonlocal answered
            if not over:
                answered = True
                await send(message)

        await self.app(scope, counting, sending)
        if over and not answered:
            await refuse(scope, send, 413, too_large(limit))


def too_large(limit: int) -> str:
    size = f"{limit / 1_000_000:g} MB"
    return f"This is more than can be sent here at once ({size}). Nothing was read or changed. Go back and send less, or split the file."


async def refuse(scope: Scope, send: Any, status: int, words: str) -> None:
    kind, body = b"text/plain; charset=utf-8", words
    if scope["path"].startswith("/api/"):  # a program asks: the API's own form of a problem
        kind = b"application/problem+json"
        body = json.dumps({"type": "/api/#size", "title": "The request is too large", "status": status, "detail": words, "errors": [], "request": ""})
    headers = [(b"content-type", kind), (b"x-content-type-options", b"nosniff"), (b"connection", b"close")]
    headers += [(b"cache-control", b"no-store"), (b"content-security-policy", b"default-src 'none'")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
