"""The channel layer: Redis's pub/sub, of which a message is unpacked once for all sockets of its group."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from channels_redis.pubsub import RedisPubSubChannelLayer

KEPT = 64  # newest messages


class SharedMessageLayer(RedisPubSubChannelLayer):  # type: ignore[misc]
    """Every socket of a group is given the same bytes and gets the same message, which no handler may change."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.deserialize = lru_cache(KEPT)(super().deserialize)
