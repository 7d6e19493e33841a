"""Requests that may cost the database seconds: how many of them a person, a team and this process have under way at once.

Which ones they are is said where they are answered: ``@costly`` on a view, ``under_way`` or ``while_sent`` in an operation of the API. A person and
a team are counted in Redis over all web processes; while Redis is away each process counts alone. Together they never hold the whole pool of
database connections, so that everybody else's pages are answered meanwhile.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import redis
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponseBase

from lab.lib.busy_answers import build_busy_response

log = logging.getLogger(__name__)

PERSON, TEAM, PROCESS = 0.3, 0.4, 0.6  # of the pool's connections
USUAL_POOL = 10  # for the shares where there is no pool
WAIT_SECONDS, LOOK_SECONDS = 2.0, 0.05  # a request waits so long for its turn: who types meets their own last search
RETRY_SECONDS = 3
KEPT_SECONDS = 900  # a process that died gives its places back after that
STATEMENT_SECONDS = 600  # one statement of what is sent as a file may take so long
REDIS_SECONDS, REDIS_PAUSE = 0.3, 10.0
KEEP = "lab-costly"
# Adds ARGV[1] to both sets unless one is full; their members' scores are when they are forgotten. Returns 0, or which set is full.
TAKE = """
local now = tonumber(redis.call('TIME')[1])
for place, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  if redis.call('ZCARD', key) >= tonumber(ARGV[place + 2]) then return place end
end
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + ARGV[2], ARGV[1])
  redis.call('EXPIRE', key, ARGV[2])
end
return 0
"""
_counting = threading.Lock()
_held: Counter[str] = Counter()  # in this process, by key; "" counts them all
_waiting: Counter[str] = Counter()
_away_until = 0.0


class TooManyRequests(Exception):
    """No place is free. ``status`` is 429 where it is the person's or the team's own doing, else 503."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words, self.seconds = status, words, RETRY_SECONDS


def limit_costly_requests(when: Callable[[HttpRequest], bool] = lambda request: True) -> Callable[[Any], Any]:
    """Declares a view as one of them, for requests that ``when`` is true of."""

    def decorate(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def counted(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not when(request):
                return view(request, *args, **kwargs)
            try:
                return while_sent(request, lambda: view(request, *args, **kwargs))
            except TooManyRequests as error:
                return build_busy_response(request, error.status, error.words, error.seconds)

        return counted

    return decorate


@contextmanager
def under_way(request: HttpRequest) -> Iterator[None]:
    """Holds a place inside. Raises TooManyRequests."""
    give_back = acquire_place(*make_place_keys(request))
    try:
        yield
    finally:
        give_back()


def while_sent(request: HttpRequest, answer: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """What ``answer`` returns; a response in pieces holds its place until the last is sent, and its statements may take longer.

    Raises TooManyRequests.
    """
    give_back = acquire_place(*make_place_keys(request))
    try:
        response = answer()
    except BaseException:
        give_back()
        raise
    if not response.streaming:
        give_back()
        return response
    longer, usual = f"{STATEMENT_SECONDS}s", response.close
    execute_statement(f"SET statement_timeout = '{longer}'")

    def close() -> None:
        try:
            execute_statement("RESET statement_timeout")
        finally:
            give_back()
            usual()

    response.close = close  # type: ignore[method-assign]
    return response


def execute_statement(statement: str) -> None:
    """On this request's connection, if it still has one that works."""
    if connection.connection is not None and not connection.needs_rollback:
        with connection.cursor() as cursor:
            cursor.execute(statement)


def make_place_keys(request: Any) -> tuple[str, str]:
    """(person, team); a service token counts as a person."""
    caller = getattr(request, "auth", None)
    user = request.user if caller is None else caller.user
    person = f"user {user.pk}" if user is not None or caller is None else f"token {caller.token.pk}"
    return f"{KEEP}:{person}", f"{KEEP}:team {request.team.pk}"


def compute_place_limit(share: float) -> int:
    return max(1, math.floor(share * (settings.POOL_SIZE or USUAL_POOL)))


def acquire_place(person: str, team: str) -> Callable[[], None]:
    """Takes a place, waiting a little for one; what gives it back. Raises TooManyRequests."""
    until = time.monotonic() + WAIT_SECONDS
    member = uuid.uuid4().hex
    problem = try_take_place(person, team, member)
    if problem is not None:
        with _counting:
            if _waiting[person] >= compute_place_limit(PERSON):
                raise problem
            _waiting[person] += 1
        try:
            if not connection.in_atomic_block:
                connection.close()  # whoever waits leaves the database to the others
            while problem is not None and time.monotonic() < until:
                time.sleep(LOOK_SECONDS)
                problem = try_take_place(person, team, member)
        finally:
            with _counting:
                _waiting[person] -= 1
    if problem is not None:
        raise problem
    return lambda: give_back(person, team, member)


def try_take_place(person: str, team: str, member: str) -> TooManyRequests | None:
    limits = {person: compute_place_limit(PERSON), team: compute_place_limit(TEAM), "": compute_place_limit(PROCESS)}
    with _counting:
        full = next((key for key, limit in limits.items() if _held[key] >= limit), None)
        if full is None:
            _held.update(limits.keys())
    if full is None:
        full_key = run_redis_script(TAKE, [person, team], [member, KEPT_SECONDS, limits[person], limits[team]])
        if not full_key:
            return None
        full = (person, team)[full_key - 1]
        release_local_place(person, team)
    if full == "":
        return TooManyRequests(503, "The server is busy with other long requests. Try again in a moment.")
    whose = "You have" if full == person else "Your team has"
    return TooManyRequests(429, f"{whose} {limits[full]} long requests (searches, exports, large charts) running. Wait until one has finished.")


def give_back(person: str, team: str, member: str) -> None:
    release_local_place(person, team)
    run_redis_script("redis.call('ZREM', KEYS[1], ARGV[1]) redis.call('ZREM', KEYS[2], ARGV[1]) return 0", [person, team], [member])


def release_local_place(person: str, team: str) -> None:
    with _counting:
        for key in (person, team, ""):
            _held[key] -= 1
            if not _held[key]:
                del _held[key]


@cache
def make_redis_client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS)


def run_redis_script(script: str, keys: list[str], values: list[Any]) -> int:
    """What the script returns; 0 while Redis does not answer."""
    global _away_until
    if time.monotonic() < _away_until:
        return 0
    try:
        reply: Any = make_redis_client().eval(script, len(keys), *keys, *values)
    except redis.RedisError as error:
        _away_until = time.monotonic() + REDIS_PAUSE
        log.warning("long requests are counted by this process alone, Redis does not answer: %s", error)
        return 0
    return int(reply)
