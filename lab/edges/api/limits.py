"""How often a token may ask: a leaky bucket in Redis, which holds one number a token. While Redis is away everybody may pass."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import redis
from django.conf import settings

log = logging.getLogger(__name__)

SECONDS = 0.3  # how long a request waits for Redis
PAUSE = 10.0  # seconds without asking again after Redis did not answer
KEEP = "lab-api-rate"
# The bucket as the time at which it will be empty (GCRA). Returns: let through, how many more at once, milliseconds until empty or until the next.
BUCKET = """
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local interval, size = tonumber(ARGV[1]), tonumber(ARGV[2])
local empty = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + interval
local early = empty - size * interval - now
if early > 0 then return {0, 0, math.ceil(early)} end
redis.call('SET', KEYS[1], string.format('%.3f', empty), 'PX', math.ceil(empty - now))
return {1, math.floor(size - (empty - now) / interval), math.ceil(empty - now)}
"""
_away_until = 0.0


@dataclass(frozen=True)
class RateLimitState:
    """``seconds``: until the whole limit is there again or, when refused, until the next request is let through."""

    passed: bool
    limit: int
    remaining: int
    seconds: int

    @property
    def headers(self) -> dict[str, str]:
        headers = {"RateLimit-Limit": str(self.limit), "RateLimit-Remaining": str(self.remaining), "RateLimit-Reset": str(self.seconds)}
        return headers if self.passed else {**headers, "Retry-After": str(self.seconds)}


@cache
def open_redis_client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=SECONDS, socket_connect_timeout=SECONDS)


def count_token_request(key: str, limit: int | None = None) -> RateLimitState | None:
    """Counts a request of ``key`` against ``limit`` a minute (LAB_API_RATE); None while Redis does not answer."""
    global _away_until
    most = settings.API_RATE if limit is None else limit
    if time.monotonic() < _away_until:
        return None
    try:
        reply: Any = open_redis_client().eval(BUCKET, 1, f"{KEEP}:{key}", str(60_000 / most), str(most))
    except redis.RedisError as error:
        _away_until = time.monotonic() + PAUSE
        log.warning("requests of the API are not counted, Redis does not answer: %s", error)
        return None
    passed, remaining, milliseconds = reply
    return RateLimitState(bool(passed), most, int(remaining), max(1, -(-int(milliseconds) // 1000)))
