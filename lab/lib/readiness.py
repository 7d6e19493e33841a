"""Whether this process can serve pages now: what it needs is asked at once, each with a limit of time, and no answer is waited for any longer.

Who asks is anybody, so the words name what fails and nothing of how it is reached; the log says the rest. Without the database, or with one of
another version of the lab, there is not a page to show. Without Redis there is: pages no longer follow runs by themselves and new jobs wait.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import redis
from django.conf import settings
from django.db import connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from lab.lib.known_migrations import list_missing_migrations, list_unknown_migrations

log = logging.getLogger(__name__)

SECONDS = 2.0  # for each check, connecting included
KEPT_SECONDS = 1.0  # an answer is good for so long, so that many who ask make one connection
OK = "ok"
SILENT = f"does not answer within {SECONDS:g} s"


@dataclass(frozen=True)
class Readiness:
    """``checks``: what is needed, and ``ok`` or what is wrong with it."""

    checks: dict[str, str]

    @property
    def is_ready(self) -> bool:
        return self.checks["database"] == self.checks["migrations"] == OK

    @property
    def status(self) -> str:
        if not self.is_ready:
            return "unavailable"
        return OK if self.checks["redis"] == OK else "degraded"


@dataclass
class TimedCheck:
    """Asks in a thread, which is left alone when it takes too long: until it comes back nobody is sent after it, so that few threads ever wait."""

    name: str
    ask: Callable[[], dict[str, str]]
    silent: dict[str, str]
    thread: threading.Thread | None = None
    found: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        if self.thread is None or not self.thread.is_alive():
            self.found = {}
            self.thread = threading.Thread(target=self.work, args=(self.found,), name=f"readiness: {self.name}", daemon=True)
            self.thread.start()

    def work(self, found: dict[str, str]) -> None:
        try:
            found.update(self.ask())
        except (psycopg.Error, redis.RedisError, OSError) as error:
            log.warning("%s does not answer: %s", self.name, str(error).strip())
            found.update(dict.fromkeys(self.silent, "does not answer"))
        except Exception:
            log.exception("%s could not be checked", self.name)
            found.update(dict.fromkeys(self.silent, "could not be checked"))

    def result(self, deadline: float) -> dict[str, str]:
        assert self.thread is not None
        self.thread.join(max(0.0, deadline - time.monotonic()))
        return dict(self.silent) if self.thread.is_alive() else self.found


def ask_database() -> dict[str, str]:
    """On a connection of its own: a pool in use by others is busy, not ill. Raises psycopg.Error."""
    parameters = connection.get_connection_params()
    parameters.pop("pool", None)
    usual = {"connect_timeout": int(SECONDS), "options": f"-c statement_timeout={round(SECONDS * 1000)}"}
    with psycopg.connect(**{**parameters, **usual, "autocommit": True}) as own:
        limit = threading.Timer(SECONDS, hang_up, [own])  # the server's own limit does not reach us over a network that has gone away
        limit.start()
        try:
            rows = own.execute("SELECT app || '.' || name FROM django_migrations").fetchall()
        except psycopg.errors.UndefinedTable:
            rows = []
        finally:
            limit.cancel()
    return {"database": OK, "migrations": compare_migrations({row[0] for row in rows})}


def hang_up(own: psycopg.Connection[Any]) -> None:
    """Ends what waits on the connection, in whatever thread, with an error."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(own.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


def compare_migrations(applied: set[str]) -> str:
    """``ok``, or in words how the tables differ from what this version of the lab expects."""
    if unknown := list_unknown_migrations(applied):
        log.warning("the database was migrated by a newer version of the lab: %s", ", ".join(unknown))
        return "the database was migrated by a newer version of the lab"
    if missing := list_missing_migrations(applied):
        log.warning("the database is not migrated to this version of the lab: %s", ", ".join(missing))
        return "the database is not migrated to this version of the lab"
    return OK


def ask_redis() -> dict[str, str]:
    """Raises redis.RedisError."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=SECONDS, socket_connect_timeout=SECONDS, retry=Retry(NoBackoff(), 0))
    try:
        client.ping()
    finally:
        client.close()
    return {"redis": OK}


class ReadinessProbe:
    """Remembers the last answer. Of many who ask at once one looks, and the others get what it found."""

    def __init__(self, ask_database: Callable[[], dict[str, str]], ask_redis: Callable[[], dict[str, str]]) -> None:
        self.checks = (
            TimedCheck("the database", ask_database, {"database": SILENT, "migrations": "unknown: the database does not answer"}),
            TimedCheck("Redis", ask_redis, {"redis": SILENT}),
        )
        self.lock = threading.Lock()
        self.kept: tuple[float, Readiness] | None = None

    def look(self) -> Readiness:
        with self.lock:
            if self.kept is None or time.monotonic() - self.kept[0] > KEPT_SECONDS:
                for check in self.checks:
                    check.begin()
                deadline = time.monotonic() + SECONDS
                found = {name: words for check in self.checks for name, words in check.result(deadline).items()}
                self.kept = time.monotonic(), Readiness(found)
            return self.kept[1]


probe = ReadinessProbe(ask_database, ask_redis)
