"""The channel layer: Redis's pub/sub, of which a message is unpacked once for all sockets of its group."""

from __future__ import annotations

from typing import Any

from channels_redis.pubsub import RedisPubSubChannelLayer

KEPT = 64  # newest messages


class SharedMessageLayer(RedisPubSubChannelLayer):  # type: ignore[misc]
    """Every socket of a group is given the same bytes and gets the same message, which no handler may change."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.messages: dict[bytes, dict[str, Any]] = {}

    def deserialize(self, message: bytes) -> dict[str, Any]:
        unpacked = self.messages.get(message)
        if unpacked is None:
            while len(self.messages) >= KEPT:
                del self.messages[next(iter(self.messages))]
            unpacked = self.messages[message] = super().deserialize(message)
        return unpacked
