"""Sends messages to channel groups from a thread of its own, in order, and never makes the caller wait.

With Redis away messages are dropped after a warning a minute: pages catch up from the database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from typing import Any

from channels.layers import get_channel_layer

log = logging.getLogger(__name__)

PENDING = 256  # messages waiting for Redis before new ones are dropped
SEND_SECONDS = 2.0
WARN_SECONDS = 60.0


class MessagePublisher:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.pending: queue.Queue[tuple[str, dict[str, Any]] | threading.Event] = queue.Queue(PENDING)
        self.warned = 0.0
        self.warning = threading.Lock()  # the sender and whoever publishes may find at once that Redis is away
        threading.Thread(target=self._drain, name="publisher", daemon=True).start()

    def put(self, group: str, message: dict[str, Any]) -> None:
        try:
            self.pending.put_nowait((group, message))
        except queue.Full:
            self._warn("too many messages wait for Redis")

    def flush(self, seconds: float) -> None:
        done = threading.Event()
        try:
            self.pending.put(done, timeout=seconds)
        except queue.Full:
            return
        done.wait(seconds)

    def _drain(self) -> None:
        loop = asyncio.new_event_loop()
        while True:
            work = self.pending.get()
            if isinstance(work, threading.Event):
                work.set()
                continue
            try:
                loop.run_until_complete(asyncio.wait_for(get_channel_layer().group_send(*work), SEND_SECONDS))
            except Exception as error:  # whatever the driver raises, the next message deserves its own try
                self._warn(repr(error))

    def _warn(self, reason: str) -> None:
        with self.warning:
            if time.monotonic() - self.warned > WARN_SECONDS or not self.warned:
                log.warning("live updates are not delivered (%s); pages catch up from the database", reason)
                self.warned = time.monotonic()


_publisher: MessagePublisher | None = None
_lock = threading.Lock()


def _get_publisher() -> MessagePublisher:
    """This process's publisher: threads do not survive a fork."""
    global _publisher
    with _lock:
        if _publisher is None or _publisher.pid != os.getpid():
            _publisher = MessagePublisher()
        return _publisher


def publish_message(group: str, message: dict[str, Any]) -> None:
    _get_publisher().put(group, message)


def flush_messages(seconds: float = 2.0) -> None:
    """Waits until what was published so far is on its way, for a process about to end."""
    _get_publisher().flush(seconds)
