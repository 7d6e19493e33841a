"""A TCP proxy with faults, in a thread of its own: between the soak's lab and its PostgreSQL and Redis."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class FaultProxy:
    """Listens on 127.0.0.1 and hands on to ``target``. ``delay``: seconds that each byte of an answer waits, which is the latency that a ping would
    tell: a long answer, which the target sends in pieces, waits no longer than a short one. ``cut``: all are ended and refused."""

    def __init__(self, target: int) -> None:
        self.target, self.delay, self.is_cut, self.port = target, 0.0, False, 0
        self.writers: set[asyncio.StreamWriter] = set()
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready,), name="proxy", daemon=True).start()
        ready.wait()

    def cut(self) -> None:
        self.is_cut = True
        self.loop.call_soon_threadsafe(self._abort)

    def heal(self) -> None:
        self.is_cut, self.delay = False, 0.0

    def _abort(self) -> None:
        for writer in list(self.writers):
            writer.transport.abort()

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        try:
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self.writers |= {writer, onward}
        await asyncio.gather(self._pump(reader, onward), self._pump(onward_reader, writer, is_answer=True), return_exceptions=True)
        self.writers -= {writer, onward}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool = False) -> None:
        read: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()  # when to hand it on, and what; nothing at the end
        sending = self.loop.create_task(self._hand_on(read, writer))
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                read.put_nowait((self.loop.time() + (self.delay if is_answer else 0.0), data))
        read.put_nowait((0.0, b""))
        await sending

    async def _hand_on(self, read: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while (piece := await read.get())[1]:
                await asyncio.sleep(piece[0] - self.loop.time())
                writer.write(piece[1])
                await writer.drain()
        writer.close()
