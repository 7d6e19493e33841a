"""Questions that many open sockets ask the database at the same time, asked once for all of them.

Two hundred pages of a run that look every five seconds at what they may see are two hundred queries by themselves, and a handful together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from channels.db import database_sync_to_async

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class SharedQuery(Generic[Key, Answer]):
    """``query`` answers a set of keys; a key that it leaves out has the answer None.

    One query is under way at a time. Who asks meanwhile is in the next one, so no answer is older than its question.
    """

    def __init__(self, query: Callable[[set[Key]], dict[Key, Answer]]) -> None:
        self.query = query
        self.loop: asyncio.AbstractEventLoop | None = None
        self.waiting: list[tuple[Key, asyncio.Future[Answer | None]]] = []
        self.work: asyncio.Task[None] | None = None

    async def ask(self, key: Key) -> Answer | None:
        """Raises what the query raises."""
        loop = asyncio.get_running_loop()
        if self.loop is not loop:  # what waited in a loop that has ended waits no more
            self.loop, self.waiting, self.work = loop, [], None
        future: asyncio.Future[Answer | None] = loop.create_future()
        self.waiting.append((key, future))
        if self.work is None or self.work.done():
            self.work = loop.create_task(self.answer_waiting())
        return await future

    async def answer_waiting(self) -> None:
        while self.waiting:
            asked, self.waiting = self.waiting, []
            try:
                answers = await database_sync_to_async(self.query)({key for key, _ in asked})
            except Exception as error:
                for _, future in asked:
                    if not future.done():
                        future.set_exception(error)
                continue
            for key, future in asked:
                if not future.done():  # who asked may have gone
                    future.set_result(answers.get(key))
