"""How many messages wait in a queue of the broker."""

from __future__ import annotations

import redis
from django.conf import settings


def count_queue_backlog(queue: str) -> int:
    """Raises redis.RedisError while Redis is away."""
    return int(redis.Redis.from_url(settings.REDIS_URL).llen(queue))  # type: ignore[arg-type]
