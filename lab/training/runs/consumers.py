"""Websockets of the run page and the runs list: they forward what is published and make up from the database for what was missed.

The channel layer only wakes a socket up. A delta is forwarded when it continues the socket's cursor; everything else, and a look every
POLL_SECONDS whatever the channel layer does, is answered from the database. A flushed or restarted Redis therefore costs seconds, never points.
"""

import asyncio
import json
import logging
import math
import time
from contextlib import suppress
from typing import Any

from channels.consumer import get_handler_name
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from lab.lib.clock import database_now
from lab.lib.numbers import MAX_ID
from lab.teams.accounts.socket_access import SESSIONS, read_open_teams
from lab.training.runs import live
from lab.training.runs.live import encode_message
from lab.training.runs.models import Run
from lab.training.runs.run_looks import MISSED, RUN_LOOKS, WATCHABLE, RunLook

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
POLL_TURNS = 10  # in so many turns of POLL_SECONDS the sockets of a process look; those of one turn ask the database together
DELIVERY_SECONDS = 0.5  # how long a message of a batch just committed may be on its way before a poll reads the batch from the database
MAX_MESSAGE = 4096  # characters a page may send at once; a hello has about 40
MAX_BAD_MESSAGES = 20
MAX_MESSAGES, RATE_SECONDS = 60, 10.0  # how many a page may send in how long; it says hello when it opens and after a gap
LABELS = ("name", "tags", "archived_at")  # columns that people change
LISTED_RUNS = 200  # newest runs of a team that the list's safety poll looks at

BAD_REQUEST, ANONYMOUS, NOT_FOUND, TOO_MANY, TOO_BIG = 4400, 4401, 4404, 4429, 1009


class PollingConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """A socket of somebody who is logged in, with a group to listen to and a poll that does not depend on it."""

    poller: asyncio.Task[None] | None = None
    joined = False
    refused = False
    bad_messages = 0
    heard, heard_since = 0, 0.0

    async def group(self) -> str | None:
        """The group to listen to, or None when this person may not (any more)."""
        raise NotImplementedError

    async def poll(self) -> None:
        """Sends what the database has and the socket has not."""
        raise NotImplementedError

    async def connect(self) -> None:
        self.lock = asyncio.Lock()
        user = self.scope.get("user")
        await self.accept()  # refused after accepting, because a browser never learns the code of a refused handshake
        if user is None or not user.is_authenticated:
            await self.close(ANONYMOUS)
            return
        self.user_id = user.pk
        self.person_group = f"person-{user.pk}"  # told by lab.teams.accounts.sessions.look_again when what the person may do has changed
        self.group_name = await self.group()
        if self.group_name is None:
            await self.close(NOT_FOUND)
            return
        await self.join()
        self.poller = asyncio.create_task(self._keep_polling())

    async def is_signed_in(self) -> bool:
        """Whether the session this socket was opened with still exists; signing out deletes it."""
        session = self.scope.get("session")
        return session is None or session.session_key is None or bool(await SESSIONS.ask(session.session_key))

    async def find_refusal(self) -> int | None:
        """The code to close with; None for who may stay."""
        if not await self.is_signed_in():
            return ANONYMOUS
        return NOT_FOUND if await self.group() is None else None

    async def may_stay(self) -> bool:
        """Asks the database; closes the socket of who is signed out or may not watch any more."""
        code = await self.find_refusal()
        if code is not None and not self.refused:  # a message and the poll may find it at once
            self.refused = True
            await self.close(code)
        return code is None

    async def access_changed(self, message: dict[str, Any]) -> None:
        await self.may_stay()

    async def join(self) -> None:
        if self.joined or self.group_name is None:
            return
        try:
            await self.channel_layer.group_add(self.person_group, self.channel_name)
            await self.channel_layer.group_add(self.group_name, self.channel_name)
            self.joined = True
        except Exception as error:  # whatever is wrong with Redis, the poll goes on without it
            log.warning("the channel layer cannot be joined (%s); polling until it can", error)

    async def _keep_polling(self) -> None:
        while True:
            await asyncio.sleep(find_seconds_to_turn(asyncio.get_running_loop().time()))
            try:
                if not await self.may_stay():
                    return
                await self.join()
                await self.refresh()
                await self.send_object({"type": "alive"})
            except Exception as error:  # the database is away: the page turns stale and the next round tries again
                log.warning("a live page could not be refreshed: %s", error)

    async def refresh(self) -> None:
        """What the poll does. A message waits for the lock, so whoever expects many looks at the database before taking it."""
        async with self.lock:
            await self.poll()

    async def disconnect(self, code: int) -> None:
        if self.poller:
            self.poller.cancel()
            with suppress(asyncio.CancelledError):
                await self.poller
        if self.joined and self.group_name is not None:
            try:
                await self.channel_layer.group_discard(self.group_name, self.channel_name)
                await self.channel_layer.group_discard(self.person_group, self.channel_name)
            except Exception as error:
                log.warning("the channel layer cannot be left (%s)", error)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if len(text_data or bytes_data or "") > MAX_MESSAGE:
            await self.close(TOO_BIG)
            return
        if self.hurried():
            await self.close(TOO_MANY)
            return
        try:
            message = json.loads(text_data) if text_data else None
        except (ValueError, RecursionError):
            message = None
        if self.poller is None or not await self.may_stay():  # what was true at the handshake may not be any more
            return
        problem = await self.understand(message) if isinstance(message, dict) else "not a JSON object"
        if problem:
            self.bad_messages += 1
            await self.send_object({"type": "error", "message": problem})
            if self.bad_messages >= MAX_BAD_MESSAGES:
                await self.close(BAD_REQUEST)

    def hurried(self) -> bool:
        """Whether more messages came than any page sends."""
        now = time.monotonic()
        if now - self.heard_since > RATE_SECONDS:
            self.heard, self.heard_since = 0, now
        self.heard += 1
        return self.heard > MAX_MESSAGES

    async def understand(self, message: dict[str, Any]) -> str:
        """Acts on a message of the page; returns what is wrong with it, or nothing."""
        return f"unknown type {str(message.get('type'))[:40]!r}"

    async def send_object(self, message: dict[str, Any]) -> None:
        await self.send(text_data=encode_message(message))

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Calls the handler of a message without what Channels does first, a change of threads that looks after database connections:
        a handler here that asks the database looks itself."""
        handler = getattr(self, get_handler_name(message), None)
        if handler is None:
            raise ValueError(f"no handler for message type {message['type']}")
        await handler(message)


def find_seconds_to_turn(now: float) -> float:
    """Until the first turn that is POLL_SECONDS or more after ``now``; every socket of the process has the same turns."""
    turn = POLL_SECONDS / POLL_TURNS
    return math.ceil((now + POLL_SECONDS) / turn) * turn - now


class KeptTexts:
    """The text of the newest deltas, which every page of a run is sent: encoded once for all of them."""

    def __init__(self, most: int = 64) -> None:
        self.most = most
        self.texts: dict[tuple[str, int, int], str] = {}

    def encode_delta(self, delta: dict[str, Any]) -> str:
        """``delta``: as published, so that the same run and range of the spool is the same text."""
        key = (delta["run"], delta["from"], delta["to"])
        text = self.texts.get(key)
        if text is None:
            while len(self.texts) >= self.most:
                del self.texts[next(iter(self.texts))]
            text = self.texts[key] = encode_message(delta)
        return text


KEPT = KeptTexts()


class RunConsumer(PollingConsumer):
    """One run. ``cursor`` is the spool offset up to which this page is complete; None until the page has said it."""

    cursor: int | None = None
    state_sent: dict[str, Any] | None = None

    async def group(self) -> str | None:
        self.run_id = self.scope["url_route"]["kwargs"]["run_id"]
        return live.run_group(self.run_id) if await WATCHABLE.ask((self.user_id, self.run_id)) else None

    async def understand(self, message: dict[str, Any]) -> str:
        if message.get("type") != "hello":
            return await super().understand(message)
        cursor = message.get("cursor")
        if not isinstance(cursor, int) or isinstance(cursor, bool) or not 0 <= cursor <= MAX_ID:
            return f"cursor must be a whole number from 0 to {MAX_ID}"
        if self.group_name is None:
            return "this run cannot be watched"
        async with self.lock:
            self.cursor = cursor
            await self.poll()
        return ""

    async def poll(self) -> None:
        """The lock is held."""
        if self.cursor is not None and (look := await RUN_LOOKS.ask(self.run_id)):
            await self.tell(look)

    async def refresh(self) -> None:
        """Deltas go on meanwhile; where one came, it has brought what there was to tell."""
        cursor, state = self.cursor, self.state_sent
        look = await RUN_LOOKS.ask(self.run_id) if cursor is not None else None
        if look is None or cursor is None:
            return
        if look.ingested > cursor:
            await asyncio.sleep(DELIVERY_SECONDS)
        async with self.lock:
            if self.cursor == cursor and self.state_sent is state:
                await self.tell(look)

    async def tell(self, look: RunLook) -> None:
        """Sends what the look has beyond the page. The lock is held."""
        if look.ingested < (self.cursor or 0):  # the run's rows were restored or rewritten under the page
            self.cursor = look.ingested
            await self.send_object({"type": "reset", "run": str(self.run_id), "to": look.ingested, "state": look.state})
        elif look.ingested > (self.cursor or 0):
            await self.catch_up()  # which knows a newer state
            return
        elif look.state != self.state_sent:
            await self.send_object({"type": "state", "run": look.state})
        self.state_sent = look.state

    async def catch_up(self) -> None:
        """Sends everything after the cursor, or a reset when that cannot be told as a delta."""
        missed = await MISSED.ask((self.run_id, self.cursor or 0))
        if missed is not None:
            self.cursor, self.state_sent = missed.to, missed.state
            await self.send(text_data=missed.text)

    async def delta(self, message: dict[str, Any]) -> None:
        async with self.lock:
            if self.cursor is None or message["to"] <= self.cursor:
                return
            if message["from"] == self.cursor:
                self.cursor = message["to"]
                self.state_sent = message.get("state") or self.state_sent
                await self.send(text_data=KEPT.encode_delta(message))
            else:
                await self.recover(message)

    async def reset(self, message: dict[str, Any]) -> None:
        async with self.lock:
            if self.cursor is None or message["to"] <= self.cursor:
                return
            self.cursor = message["to"]
            await self.send_object(message)

    async def state(self, message: dict[str, Any]) -> None:
        async with self.lock:
            self.state_sent = message["run"]
            await self.send_object(message)

    async def labels(self, message: dict[str, Any]) -> None:
        async with self.lock:
            await self.send_object(message)

    async def edits(self, message: dict[str, Any]) -> None:
        async with self.lock:
            await self.send_object(message)

    async def recover(self, message: dict[str, Any]) -> None:
        try:
            await self.catch_up()
        except Exception as error:  # the poll will try again; a dropped wake-up loses nothing
            log.warning("run %s could not be caught up after %s: %s", self.run_id, message.get("from"), error)


class TeamConsumer(PollingConsumer):
    """All runs of the team in the address: their state and what people call them, whenever it changes.

    {"type": "listening"} is sent first: from then on no change is missed.
    """

    async def connect(self) -> None:
        await super().connect()
        if self.poller is not None:
            await self.send_object({"type": "listening"})  # a page that fetches its runs before this may lack what changed in between

    async def group(self) -> str | None:
        team_id = self.scope["url_route"]["kwargs"]["team_id"]
        if team_id not in await read_open_teams(self.user_id, "runs.read"):
            return None
        if not hasattr(self, "known"):
            self.known: dict[str, tuple[Any, ...]] = dict(await self.changed(team_id, {}))
        self.team_id = team_id
        return live.team_group(team_id)

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def changed(self, team_id: Any, known: dict[str, tuple[Any, ...]]) -> list[tuple[str, tuple[Any, ...]]]:
        newest = Run.objects.of(team_id).order_by("-created_at")
        rows = newest.values_list("id", *LABELS, "status", "reason", "step", "phase", "phase_done", "ingested")[:LISTED_RUNS]
        return [(str(row[0]), row[1:]) for row in rows if known.get(str(row[0])) != row[1:]]

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def messages(self, run_ids: list[str], relabelled: set[str]) -> list[dict[str, Any]]:
        now, found = database_now(), list(Run.objects.of(self.team_id).filter(pk__in=run_ids))
        labels = [{"type": "labels", "run": live.describe_run_labels(run)} for run in found if str(run.pk) in relabelled]
        return [*({"type": "state", "run": live.describe_run_state(run, now)} for run in found), *labels]

    async def poll(self) -> None:
        changed = await self.changed(self.team_id, self.known)
        count = len(LABELS)
        relabelled = {run_id for run_id, row in changed if run_id in self.known and self.known[run_id][:count] != row[:count]}
        self.known.update(changed)
        for message in await self.messages([run_id for run_id, _ in changed], relabelled) if changed else []:
            await self.send_object(message)

    async def state(self, message: dict[str, Any]) -> None:
        async with self.lock:
            await self.send_object(message)

    async def labels(self, message: dict[str, Any]) -> None:
        await self.state(message)
