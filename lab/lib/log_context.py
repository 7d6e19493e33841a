"""What a line of a log belongs to: the request that is answered, the run that is supervised, and the team of either.

A ``LogContext`` is put in place where a request or a run begins; whoever learns more of it later writes into that object, so that what is known
inside a view stands in the server's own line about the request too, although the view ran in another thread.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from lab.lib.proxies import App, Scope

REQUEST_ID = re.compile(r"[-\w]{1,64}", re.ASCII)
NAMES = ("request", "run", "team")


@dataclass
class LogContext:
    """Ids as text; empty where there is none. ``request``: also the header X-Request-Id of the answer."""

    request: str = ""
    run: str = ""
    team: str = ""


_now: ContextVar[LogContext | None] = ContextVar("what a line of a log belongs to", default=None)


def get_log_context() -> LogContext:
    """What is in place; where nothing is, an object that nobody reads."""
    return _now.get() or LogContext()


@contextmanager
def use_log_context(context: LogContext) -> Iterator[LogContext]:
    mark = _now.set(context)
    try:
        yield context
    finally:
        _now.reset(mark)


def choose_request_id(sent: str) -> str:
    """What the client or a proxy calls the request, if it is a name; else a new id."""
    return sent if REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex


class RequestContext:
    """Around all else that answers: every request and websocket has an id while it lasts, and an answer tells it."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        context = LogContext(choose_request_id(sent.decode("latin-1")))

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                others = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"x-request-id"]
                message = {**message, "headers": [*others, (b"x-request-id", context.request.encode())]}
            await send(message)

        # Without a reset at the end: the server makes a task for each request, and writes its own line when this one is over.
        _now.set(context)
        await self.app(scope, receive, sending)


class ContextFilter(logging.Filter):
    """For handlers: puts the ids on a record as ``request``, ``run`` and ``team``, unless who logged it named them. Lets everything through."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = get_log_context()
        for name in NAMES:
            if not isinstance(getattr(record, name, None), str):  # Django puts its request object there
                setattr(record, name, getattr(context, name))
        return True
