"""The websockets over a real channel layer: what a page is sent, and that whatever is lost on the way comes out of the database."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from channels.routing import URLRouter
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from redis import asyncio as aioredis

from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.training.runs import consumers, live, metrics, run_looks
from lab.training.runs.models import Run, Status
from lab.training.runs.routing import websocket_urlpatterns
from tests.conftest import make_member
from tests.lab.supervisor.spools import make_run, started, steps, write

pytestmark = pytest.mark.django_db(transaction=True)

POLL = 0.3


@pytest.fixture(autouse=True)
def quick_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", POLL)


@pytest.fixture
def run(transactional_db: None, team: Team) -> Run:
    run = make_run(team, status=Status.RUNNING)
    write(run.folder, [started(), *steps(1, 3)])
    ingest_spool(run)
    return run


def more(run: Run, first: int, last: int, attempt: int = 1) -> Any:
    """Adds steps to the spool and ingests them, as the supervisor would, without telling anybody."""
    write(run.folder, steps(first, last, attempt))
    run.refresh_from_db()
    return ingest_spool(run)


class Page:
    """A websocket with what a page would have after applying everything it was sent."""

    def __init__(self, socket: ApplicationCommunicator, cursor: int = 0) -> None:
        self.socket, self.cursor = socket, cursor
        self.points: dict[str, list[list[Any]]] = {}
        self.seen: list[dict[str, Any]] = []

    async def hello(self, cursor: Any) -> None:
        await self.say(text=json.dumps({"type": "hello", "cursor": cursor}))

    async def say(self, **frame: Any) -> None:
        await self.socket.send_input({"type": "websocket.receive", **frame})

    async def receive(self, timeout: float = 60) -> dict[str, Any]:
        frame = await self.socket.receive_output(timeout)
        assert frame["type"] == "websocket.send", frame
        message: dict[str, Any] = json.loads(frame["text"])
        self.seen.append(message)
        if message["type"] == "delta":
            assert message["from"] == self.cursor, "a page may only be sent what continues its cursor"
            self.cursor = message["to"]
            for name, points in message["points"].items():
                self.points.setdefault(name, []).extend(points)
        elif message["type"] == "reset":
            self.cursor = message["to"]
        return message

    async def until(self, wanted: Callable[[dict[str, Any]], bool], tries: int = 40) -> dict[str, Any]:
        for _ in range(tries):
            message = await self.receive()
            if wanted(message):
                return message
        raise AssertionError(f"never came; got {[message['type'] for message in self.seen]}")

    async def until_type(self, kind: str) -> dict[str, Any]:
        return await self.until(lambda message: message["type"] == kind)


@asynccontextmanager
async def opened(path: str, user: Any, cursor: int = 0, **more: Any) -> AsyncIterator[Page]:
    scope = {"type": "websocket", "path": path, "query_string": b"", "headers": [], "subprotocols": [], "user": user, **more}
    socket = ApplicationCommunicator(URLRouter(websocket_urlpatterns), scope)
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output(60))["type"] == "websocket.accept"
    try:
        yield Page(socket, cursor)
    finally:
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait(60)


async def close_code(page: Page) -> int:
    for _ in range(40):
        message = await page.socket.receive_output(60)
        if message["type"] == "websocket.close":
            return int(message["code"])
    raise AssertionError("it was not closed")


def ws(run: Run) -> str:
    return f"/ws/runs/{run.pk}/"


def listing_of(team: Team) -> str:
    return f"/ws/teams/{team.pk}/"


async def test_another_teams_list_looks_as_if_there_were_none(run: Run, team: Team, stranger: User) -> None:
    for wanted in (team.pk, 2**70):
        async with opened(f"/ws/teams/{wanted}/", stranger) as page:
            assert await close_code(page) == 4404


async def test_an_annotator_watches_no_runs(run: Run, team: Team) -> None:
    annotator = await sync_to_async(make_member)("annotator@example.org", team, Role.ANNOTATOR)
    for path in (ws(run), listing_of(team)):
        async with opened(path, annotator) as page:
            assert await close_code(page) == 4404


async def test_a_deactivated_member_is_closed_out(run: Run, team: Team, teammate: User) -> None:
    async with opened(ws(run), teammate) as page, opened(listing_of(team), teammate) as listing:
        await Membership.objects.filter(user=teammate).aupdate(active=False)
        assert await close_code(page) == 4404
        assert await close_code(listing) == 4404


def stored(run: Run) -> dict[str, list[list[Any]]]:
    return {
        name: [[step, value] for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True)]
        for name, one in metrics.read_metric_series(run.pk).items()
        if not name.startswith("@")
    }


async def test_it_tells_somebody_who_is_not_logged_in_to_go_away(run: Run) -> None:
    async with opened(ws(run), AnonymousUser()) as page:
        assert await close_code(page) == 4401


async def test_another_teams_run_looks_as_if_there_were_none(run: Run, stranger: User) -> None:
    async with opened(ws(run), stranger) as page:
        assert await close_code(page) == 4404
    async with opened("/ws/runs/00000000-0000-4000-8000-000000000000/", stranger) as page:
        assert await close_code(page) == 4404


async def test_another_team_gets_no_message_of_a_run(run: Run, team: Team, owner: User, stranger: User) -> None:
    theirs_team = await Team.objects.aget(slug="elsewhere")
    async with opened(listing_of(theirs_team), stranger) as theirs, opened(listing_of(team), owner) as ours:
        await ours.until_type("alive")  # Redis knows of the subscription by now
        await sync_to_async(live.publish_state)(run)
        assert (await ours.until_type("state"))["run"]["id"] == str(run.pk)
        assert [(await theirs.receive())["type"] for _ in range(3)] == ["listening", "alive", "alive"]


async def test_a_hello_is_answered_with_everything_after_the_cursor(run: Run, owner: User) -> None:
    cursor = run.ingested
    await database_sync_to_async(more)(run, 4, 6)
    async with opened(ws(run), owner, cursor) as page:
        await page.hello(cursor)
        delta = await page.until_type("delta")
        assert delta["to"] == run.ingested
        assert [step for step, _ in delta["points"]["reward"]] == [4, 5, 6]
        assert delta["rollouts"]["count"] == 24


async def test_a_current_page_is_sent_no_points(run: Run, owner: User) -> None:
    async with opened(ws(run), owner, run.ingested) as page:
        await page.hello(run.ingested)
        await page.until_type("alive")
        await page.until_type("alive")
        assert {message["type"] for message in page.seen} <= {"state", "alive"}


@pytest.mark.feature(15)
async def test_a_published_delta_that_continues_the_cursor_is_forwarded(run: Run, owner: User) -> None:
    async with opened(ws(run), owner, run.ingested) as page:
        await page.hello(run.ingested)
        await page.until_type("state")
        message = {
            "type": "delta",
            "run": str(run.pk),
            "from": run.ingested,
            "to": run.ingested + 10,
            "attempt": 1,
            "axes": {},
            "points": {"reward": [[4, 0.5]]},
        }
        await get_channel_layer().group_send(live.run_group(run.pk), message)
        assert (await page.until_type("delta"))["points"] == {"reward": [[4, 0.5]]}


async def test_pages_of_a_run_share_the_text_of_a_delta(run: Run, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = consumers.encode_message
    monkeypatch.setattr(consumers, "encode_message", lambda message: (encoded.append(message["type"]), encode(message))[1])
    axes = {"step": [4], "time": [1.7e9], "tokens": [0]}
    message = {"type": "delta", "run": str(run.pk), "from": run.ingested, "to": run.ingested + 10, "attempt": 1, "axes": axes}
    async with opened(ws(run), owner, run.ingested) as first, opened(ws(run), owner, run.ingested) as second:
        for page in (first, second):
            await page.hello(run.ingested)
            await page.until_type("state")
        await get_channel_layer().group_send(live.run_group(run.pk), {**message, "points": {"reward": [[4, 0.5]]}})
        for page in (first, second):
            assert (await page.until_type("delta"))["points"] == {"reward": [[4, 0.5]]}
    assert encoded.count("delta") == 1


def test_texts_of_deltas_are_kept_for_a_while_only() -> None:
    kept = consumers.KeptTexts(most=2)
    texts = [kept.encode_delta({"type": "delta", "run": "r", "from": number, "to": number + 1}) for number in range(4)]
    assert [json.loads(text)["from"] for text in texts] == [0, 1, 2, 3]
    assert list(kept.texts) == [("r", 2, 3), ("r", 3, 4)]


async def test_a_delta_does_not_wait_for_a_poll_that_asks_the_database(run: Run, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    asking, answers = threading.Event(), threading.Event()
    look = run_looks.RUN_LOOKS.query
    message = {"type": "delta", "run": str(run.pk), "from": run.ingested, "to": run.ingested + 10, "attempt": 1, "axes": {}}
    async with opened(ws(run), owner, run.ingested) as page:
        await page.hello(run.ingested)
        await page.until_type("state")
        monkeypatch.setattr(run_looks.RUN_LOOKS, "query", lambda ids: (asking.set(), answers.wait(60), look(ids))[2])
        assert await asyncio.to_thread(asking.wait, 60)
        await get_channel_layer().group_send(live.run_group(run.pk), {**message, "points": {"reward": [[4, 0.5]]}})
        assert (await page.until_type("delta"))["points"] == {"reward": [[4, 0.5]]}
        answers.set()
        await page.until_type("alive")
        assert "reset" not in {one["type"] for one in page.seen}, "the look was older than the delta"


async def test_a_delta_that_comes_twice_is_shown_once(run: Run, owner: User) -> None:
    async with opened(ws(run), owner, run.ingested) as page:
        await page.hello(run.ingested)
        since = run.ingested
        batch = await database_sync_to_async(more)(run, 4, 5)
        assert batch is not None
        message = {
            "type": "delta",
            "run": str(run.pk),
            "from": since,
            "to": run.ingested,
            "attempt": 1,
            "axes": {},
            "points": {"reward": [[4, 0.4], [5, 0.5]]},
        }
        for _ in range(3):
            await get_channel_layer().group_send(live.run_group(run.pk), message)
        await page.until_type("delta")
        await page.until_type("alive")
        await page.until_type("alive")
        assert [message["type"] for message in page.seen].count("delta") == 1


async def test_a_delta_beyond_a_gap_is_replaced_by_what_the_database_has(run: Run, owner: User) -> None:
    cursor = run.ingested
    async with opened(ws(run), owner, cursor) as page:
        await page.hello(cursor)
        await page.until_type("state")
        await database_sync_to_async(more)(run, 4, 7)
        lost = {
            "type": "delta",
            "run": str(run.pk),
            "from": run.ingested - 5,
            "to": run.ingested,
            "attempt": 1,
            "axes": {},
            "points": {"reward": [[7, 9.9]]},
        }
        await get_channel_layer().group_send(live.run_group(run.pk), lost)
        while page.cursor < run.ingested:
            await page.until_type("delta")
        assert page.points["reward"] == (await database_sync_to_async(stored)(run))["reward"][3:]


async def test_points_come_without_any_message_when_redis_forgets_everything(run: Run, owner: User) -> None:
    async with opened(ws(run), owner, run.ingested) as page:
        await page.hello(run.ingested)
        await page.until_type("state")
        client = aioredis.Redis.from_url(settings.REDIS_URL)
        await client.flushall()
        await client.client_kill_filter(_type="pubsub")
        await client.aclose()
        await database_sync_to_async(more)(run, 4, 9)
        while page.cursor < run.ingested:
            await page.until_type("delta")
        assert page.points == {name: points[3:] for name, points in (await database_sync_to_async(stored)(run)).items()}


def test_a_run_that_is_gone_keeps_no_other_page_waiting(run: Run) -> None:
    missed = run_looks.read_missed({(uuid4(), 0), (run.pk, 0)})
    assert [(key, one.to) for key, one in missed.items()] == [((run.pk, 0), run.ingested)]


async def test_a_new_attempt_resets_the_page(run: Run, owner: User) -> None:
    cursor = run.ingested
    async with opened(ws(run), owner, cursor) as page:
        await page.hello(cursor)
        await page.until_type("state")
        await database_sync_to_async(write)(run.folder, [started(attempt=2, from_step=2)])
        await database_sync_to_async(more)(run, 3, 4, 2)
        reset = await page.until_type("reset")
        assert reset["to"] == run.ingested
        assert reset["state"]["attempt"] == 2


async def test_a_cursor_beyond_the_database_resets_the_page(run: Run, owner: User) -> None:
    async with opened(ws(run), owner, run.ingested + 1000) as page:
        await page.hello(run.ingested + 1000)
        assert (await page.until_type("reset"))["to"] == run.ingested


async def test_a_change_of_status_comes_without_a_message(run: Run, team: Team, owner: User) -> None:
    async with opened(ws(run), owner, run.ingested) as page:
        await page.hello(run.ingested)
        await page.until_type("state")
        await database_sync_to_async(Run.across_teams.filter(pk=run.pk).update)(status=Status.FAILED, reason="out of memory")
        state = (await page.until(lambda message: message["type"] == "state" and message["run"]["status"] == "failed"))["run"]
        assert state["reason"] == "out of memory"


GARBAGE = [
    "",
    "{",
    "[]",
    "null",
    "7",
    '"hello"',
    '{"type":"delta"}',
    '{"type":["hello"]}',
    '{"type":"hello"}',
    "[" * 3000,
    '{"type":"hello","cursor":true}',
]


@pytest.mark.parametrize("cursor", [None, -1, "7", 1.5, True, [], {}, 2**64])
async def test_a_hello_with_a_cursor_that_is_no_offset_says_what_is_wrong(run: Run, owner: User, cursor: Any) -> None:
    async with opened(ws(run), owner) as page:
        await page.hello(cursor)
        assert "whole number" in (await page.until_type("error"))["message"]


async def test_garbage_is_answered_and_the_socket_still_works(run: Run, owner: User) -> None:
    async with opened(ws(run), owner) as page:
        for text in GARBAGE:
            await page.say(text=text)
            assert (await page.until_type("error"))["message"]
        await page.say(bytes=b"\xff\x00")
        assert (await page.until_type("error"))["message"]
        await page.hello(0)
        assert (await page.until(lambda message: message["type"] in ("delta", "reset")))["to"] == run.ingested


async def test_somebody_who_only_sends_garbage_is_cut_off(run: Run, owner: User) -> None:
    async with opened(ws(run), owner) as page:
        for _ in range(consumers.MAX_BAD_MESSAGES):
            await page.say(text="?")
        assert await close_code(page) == 4400


async def test_a_message_that_is_far_too_long_closes_the_socket(run: Run, owner: User) -> None:
    async with opened(ws(run), owner) as page:
        await page.say(text=json.dumps({"type": "hello", "cursor": 0, "more": "x" * 10_000}))
        assert await close_code(page) == 1009


async def test_leaving_the_team_closes_the_socket(run: Run, owner: User) -> None:
    async with opened(ws(run), owner, run.ingested) as page:
        await page.hello(run.ingested)
        await page.until_type("alive")
        await database_sync_to_async(Membership.objects.filter(user=owner).delete)()
        assert await close_code(page) == 4404


async def test_a_deactivated_account_loses_its_sockets(run: Run, team: Team, owner: User) -> None:
    async with opened(ws(run), owner) as page, opened(listing_of(team), owner) as listing:
        await database_sync_to_async(User.objects.filter(pk=owner.pk).update)(is_active=False)
        assert await close_code(page) == 4404
        assert await close_code(listing) == 4404


async def test_the_list_says_from_when_on_it_misses_nothing(run: Run, team: Team, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page fetches its rows then: a change between the handshake and the joining of the group was in neither."""
    joined = []
    join = consumers.TeamConsumer.join

    async def join_late(self: consumers.TeamConsumer) -> None:
        await asyncio.sleep(0.1)
        await join(self)
        joined.append(self.joined)

    monkeypatch.setattr(consumers.TeamConsumer, "join", join_late)
    async with opened(listing_of(team), owner) as page:
        assert (await page.receive())["type"] == "listening"
        assert joined == [True]


async def test_the_list_learns_of_a_changed_run_without_a_message(run: Run, team: Team, owner: User) -> None:
    async with opened(listing_of(team), owner) as page:
        await page.until_type("alive")
        await database_sync_to_async(Run.across_teams.filter(pk=run.pk).update)(status=Status.FINISHED, step=10)
        state = (await page.until_type("state"))["run"]
        assert (state["id"], state["status"], state["step"]) == (str(run.pk), "finished", 10)


async def test_the_list_learns_of_a_new_name_without_a_message(run: Run, team: Team, owner: User) -> None:
    async with opened(listing_of(team), owner) as page:
        await page.until_type("alive")
        await database_sync_to_async(Run.across_teams.filter(pk=run.pk).update)(name="renamed", tags=["night"])
        labels = await page.until_type("labels")
        assert labels["run"] == {"id": str(run.pk), "number": run.number, "name": "renamed", "tags": ["night"], "archived": False}


async def test_a_socket_opens_and_catches_up_while_redis_cannot_be_joined(run: Run, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*args: Any) -> None:
        raise ConnectionError("Redis is away")

    monkeypatch.setattr(consumers.RunConsumer, "join", refuse_join(refuse))
    cursor = run.ingested
    async with opened(ws(run), owner, cursor) as page:
        await page.hello(cursor)
        await database_sync_to_async(more)(run, 4, 5)
        assert (await page.until_type("delta"))["to"] == run.ingested


def refuse_join(refuse: Any) -> Any:
    """The product's own join, on a channel layer that cannot be reached."""
    original = consumers.PollingConsumer.join

    async def join(self: consumers.RunConsumer) -> None:
        layer, self.channel_layer = self.channel_layer, type("Away", (), {"group_add": staticmethod(refuse)})()
        try:
            await original(self)
        finally:
            self.channel_layer = layer

    return join
