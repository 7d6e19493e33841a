"""How long the web process may keep the database at one thing, and what is said when that is over or no connection is free."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import psycopg
import psycopg_pool
from django.conf import settings
from django.db import Error, connections

from lab.lib.proxies import App, Scope

log = logging.getLogger(__name__)

CANCELLED, FULL = "57014", "53300"  # SQLSTATE of a statement that took too long, of a server without a free connection
GONE = ("08", "57P")  # beginnings of those of a lost connection, of a server that stops or starts
SERIAL = "64MB"  # PostgreSQL's own bound is 512 kB
TRY_LATER = 1013  # close code of a websocket
NO_CONNECTION = (psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests)


@dataclass(frozen=True)
class DatabaseTrouble:
    """Why the database cannot answer now, for a person, and after how many seconds it is worth asking again."""

    words: str
    seconds: int


def limit_statements(seconds: float) -> None:
    """Every connection this process makes from now on ends a statement that takes longer; 0 is no limit. For the web process alone."""
    if seconds:
        set_connection_option("statement_timeout", str(round(seconds * 1000)))


def keep_short_scans_serial() -> None:
    """No connection this process makes from now on calls workers to read less than SERIAL of an index. For the web process alone: a run of 50,000
    rollouts takes 8 to 13 ms to sort, 10 to 16 with two workers, which besides take the processors from other people's requests.
    """
    set_connection_option("min_parallel_index_scan_size", SERIAL)


def set_connection_option(name: str, value: str) -> None:
    options = connections.settings["default"].setdefault("OPTIONS", {})
    options["options"] = f"{options.get('options', '')} -c {name}={value}".strip()


def describe_database_trouble(error: BaseException | None) -> DatabaseTrouble | None:
    """What the error says of the database; None for one that says nothing of how it fares."""
    if not isinstance(error, Error | psycopg.Error):
        return None
    cause: Any = error if isinstance(error, psycopg.Error) else error.__cause__
    state = getattr(cause, "sqlstate", None)
    if isinstance(cause, NO_CONNECTION) or state == FULL:
        return DatabaseTrouble("All connections to the database are in use. Try again in a moment.", 5)
    if state == CANCELLED:
        words = f"The query timed out after {settings.STATEMENT_SECONDS:g} s."
        return DatabaseTrouble(f"{words} Select fewer runs or steps.", 10)
    if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError) and (state is None or state.startswith(GONE)):
        return DatabaseTrouble("The database cannot be reached. Runs continue meanwhile. Try again in a moment.", 5)
    return None


class DatabaseTroubleMiddleware:
    """A socket whose database cannot answer is refused with 503 before it is open, and closed with TRY_LATER after that; pages open it again."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        accepted = False

        async def sending(message: Any) -> None:
            nonlocal accepted
            accepted = accepted or message["type"] == "websocket.accept"
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            trouble = describe_database_trouble(error)
            if trouble is None:
                raise
            log.warning("a live page could not be served: %s", str(error).strip())
            if accepted:
                await send({"type": "websocket.close", "code": TRY_LATER})
            else:
                await deny_websocket(scope, send, trouble)


async def deny_websocket(scope: Scope, send: Any, trouble: DatabaseTrouble) -> None:
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": TRY_LATER})
        return
    headers = [(b"retry-after", str(trouble.seconds).encode()), (b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "websocket.http.response.start", "status": 503, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": trouble.words.encode()})
