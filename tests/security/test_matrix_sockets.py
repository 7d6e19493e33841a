"""Every websocket × everybody, compared with the permission table; and what holds for all of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.conf import settings
from django.test import Client

from lab.asgi import application
from lab.teams.accounts.models import Membership, Team, User
from lab.teams.accounts.permissions import TABLE, find_route_access, is_role_allowed
from tests.lab.cast import Cast, make_cast
from tests.security.people import MEMBERS, PEOPLE, client_of, make_people, sockets

pytestmark = pytest.mark.django_db(transaction=True)

HOST = "127.0.0.1:8000"
OWN = f"http://{HOST}"
REFUSED = 403
PATIENCE = 60  # seconds, on a busy machine


class Opened:
    """A handshake and what came of it. ``code``: None while the socket is open; REFUSED when it never was."""

    def __init__(self, socket: ApplicationCommunicator) -> None:
        self.socket = socket
        self.accepted = False
        self.code: int | None = None

    async def settle(self, quiet: float = PATIENCE) -> None:
        """Until the socket is refused, closed, or quiet for so many seconds after it was accepted; who expects it to be closed can wait long."""
        seconds = PATIENCE
        while not await self.socket.receive_nothing(seconds, 0.01):
            frame = await self.socket.receive_output(1)
            if frame["type"] == "websocket.close":
                self.code = frame.get("code", 1000) if self.accepted else REFUSED
                return
            self.accepted = True
            seconds = quiet

    async def say(self, **frame: Any) -> None:
        await self.socket.send_input({"type": "websocket.receive", **frame})


@asynccontextmanager
async def opened(path: str, client: Client | None = None, origin: str | None = OWN, host: str = HOST, quiet: float = 0.2) -> AsyncIterator[Opened]:
    headers = [(b"host", host.encode())]
    if client is not None and settings.SESSION_COOKIE_NAME in client.cookies:
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}".encode()))
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    scope = {
        "type": "websocket",
        "path": path,
        "headers": headers,
        "query_string": b"",
        "subprotocols": [],
        "client": ("127.0.0.1", 1),
        "scheme": "ws",
    }
    socket = ApplicationCommunicator(application, scope)
    await socket.send_input({"type": "websocket.connect"})
    made = Opened(socket)
    await made.settle(quiet)
    yield made
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})  # a server says so after a refusal, too
    await socket.wait(PATIENCE)


def paths(cast: Cast, team: Team) -> dict[str, str]:
    """By name; ``team_id`` is the cast's team."""
    found = {}
    for route in sockets():
        values = {one: team.pk if one == "team_id" else cast.value(str(route.name), one) for one in route.pattern.converters}
        found[str(route.name)] = "/" + filled(str(route.pattern), values)
    return found


def filled(pattern: str, values: dict[str, Any]) -> str:
    """``ws/runs/<uuid:run_id>/`` with the values."""
    for name, value in values.items():
        start = pattern.index(f":{name}>")
        begin = pattern.rindex("<", 0, start)
        pattern = f"{pattern[:begin]}{value}{pattern[start + len(name) + 2 :]}"
    return pattern


@pytest.fixture
def cast(transactional_db: None, team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "sockets")


@pytest.fixture
def places(cast: Cast, team: Team) -> dict[str, str]:
    return paths(cast, team)


@pytest.fixture
def clients(team: Team, owner: User, cast: Cast) -> dict[str, Client]:
    return {who: client_of(user) for who, user in make_people(team, owner).items()}


async def test_every_socket_lets_in_whom_the_table_names_and_nobody_else(clients: dict[str, Client], places: dict[str, str], team: Team) -> None:
    wrong = []
    for name, path in places.items():
        asked = find_route_access(name)
        assert asked is not None, name
        for who in PEOPLE:
            meant = who in MEMBERS and (asked.read not in TABLE or is_role_allowed(who, asked.read))
            async with opened(path, clients[who], quiet=0.2 if meant else PATIENCE) as socket:
                in_it = socket.code is None
                if in_it != meant:
                    wrong.append(f"{name}: {who} {'was let in' if in_it else f'was closed with {socket.code}'}")
    assert wrong == []


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "https://evil.example.org",
        "http://127.0.0.1:9999",
        "https://127.0.0.1:8000",
        "http://127.0.0.1",
        "http://127.0.0.1:8000.evil.example.org",
        "http://evil.example.org#127.0.0.1:8000",
        "http://127.0.0.1:8000@evil.example.org",
    ],
)
async def test_a_page_of_another_origin_opens_no_socket(origin: str | None, clients: dict[str, Client], places: dict[str, str], team: Team) -> None:
    """Cross-site WebSocket hijacking (Cline CVE-2026-44211): the browser sends the cookie, the Origin tells whose page it is."""
    for path in places.values():
        async with opened(path, clients["owner"], origin) as socket:
            assert socket.code == REFUSED, path


async def test_a_team_that_asks_for_a_second_factor_opens_no_socket_to_who_has_none(
    clients: dict[str, Client], places: dict[str, str], team: Team
) -> None:
    await database_sync_to_async(Team.objects.filter(pk=team.pk).update)(requires_mfa=True)
    for path in places.values():
        async with opened(path, clients["owner"], quiet=PATIENCE) as socket:
            assert socket.code is not None, path


async def test_a_host_that_is_not_the_labs_opens_no_socket(clients: dict[str, Client], places: dict[str, str], team: Team) -> None:
    """DNS rebinding: the page's origin is its own name, that now leads here."""
    for path in places.values():
        async with opened(path, clients["owner"], "http://rebound.example.org:8000", "rebound.example.org:8000") as socket:
            assert socket.code == REFUSED, path


async def test_who_lost_the_right_gets_no_answer_to_the_next_message(clients: dict[str, Client], places: dict[str, str], team: Team) -> None:
    """Asked for each message, without waiting for the poll and with the channel layer's word lost."""
    for name, path in places.items():
        if name not in ("ws-run", "ws-runs"):
            continue
        async with opened(path, clients["viewer"]) as socket:
            assert socket.code is None, name
            members = Membership.objects.filter(team=team, user__email="the-viewer@example.org")
            await database_sync_to_async(members.update)(active=False)
            await socket.say(text=json.dumps({"type": "hello", "cursor": 0}))
            await socket.settle()
            assert socket.code == 4404, name
            await database_sync_to_async(members.update)(active=True)


GARBAGE = [
    "",
    "{",
    "[]",
    "null",
    "1e999",
    '"hello"',
    '{"type":"hello","cursor":-1}',
    '{"type":"hello","cursor":NaN}',
    '{"type":{}}',
    "[" * 4000,
    "\x00",
    "\ud7ff",
]


async def test_garbage_is_answered_and_a_flood_of_it_ends_the_socket(clients: dict[str, Client], places: dict[str, str], team: Team) -> None:
    for path in places.values():
        async with opened(path, clients["owner"]) as socket:
            for text in GARBAGE:
                await socket.say(text=text)
            await socket.say(bytes=b"\xff\xfe\x00" * 30)
            for _ in range(100):
                await socket.say(text="{}")
            await socket.settle()
            assert socket.code is not None, path


async def test_a_message_too_large_ends_the_socket(clients: dict[str, Client], places: dict[str, str], team: Team) -> None:
    for path in places.values():
        async with opened(path, clients["owner"]) as socket:
            await socket.say(text=json.dumps({"type": "hello", "cursor": 0, "more": "x" * 100_000}))
            await socket.settle()
            assert socket.code is not None, path
