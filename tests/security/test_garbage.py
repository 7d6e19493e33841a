"""Garbage by Hypothesis into what reads lines and frames of others: the spool reader, ingest, and the websocket protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.rollouts.trajectories.models import Rollout
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import make_run, measured, rollout, started, write
from tests.security.people import client_of
from tests.security.test_matrix_sockets import opened
from trainers.contract import spool

QUICK = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
EVENTS = [msgspec.to_builtins(one) for one in (started(), rollout(), measured(1))]
PLACES = [(number, name) for number, event in enumerate(EVENTS) for name in event]


@st.composite
def almost_events(draw: Any) -> bytes:
    """A true event with one field replaced by anything."""
    number, name = draw(st.sampled_from(PLACES))
    return json.dumps({**EVENTS[number], name: draw(VALUES)}).encode()


LINES: Any = (
    almost_events() | VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60).map(lambda line: line.replace(b"\n", b""))
)


@given(data=st.binary(max_size=400) | st.lists(LINES, max_size=6).map(b"\n".join), offset=st.integers(0, 500))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_reader_gives_every_whole_line_of_anything_once(data: bytes, offset: int, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(data)
    lines = list(spool.read_spool_lines(path, 0))
    ends = [line.end for line in lines]
    assert ends == sorted(set(ends))
    assert (ends[-1] if ends else 0) == data.rfind(b"\n") + 1
    assert all(line.event is not None or line.error for line in lines)
    list(spool.read_spool_lines(path, offset))


@pytest.mark.django_db
@given(lines=st.lists(LINES, min_size=1, max_size=12))
@QUICK
def test_ingest_goes_on_after_lines_that_are_none(lines: list[bytes], team: Team) -> None:
    run = make_run(team, status=Status.RUNNING)
    write(run.folder, [started()])
    with (run.folder / "events.jsonl").open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    write(run.folder, [rollout(9, 0, 0, completion="the last one"), measured(9)])
    while ingest_spool(run):
        run.refresh_from_db()
    run.refresh_from_db()
    assert run.ingested == (run.folder / "events.jsonl").stat().st_size
    assert Rollout.objects.filter(run=run, step=9, completion="the last one").exists()
    Run.across_teams.filter(pk=run.pk).delete()


FRAMES: Any = st.one_of(
    VALUES.map(lambda value: {"text": json.dumps(value)}),
    st.text(max_size=200).map(lambda text: {"text": text.encode("utf-8", "replace").decode()}),
    st.binary(max_size=200).map(lambda data: {"bytes": data}),
    VALUES.map(lambda value: {"text": json.dumps({"type": "hello", "cursor": value})}),
)


@pytest.mark.django_db(transaction=True)
@given(frames=st.lists(FRAMES, min_size=1, max_size=12))
@settings(QUICK, max_examples=6)
async def test_a_socket_answers_garbage_in_words_and_still_serves(frames: list[dict[str, Any]], garbled: tuple[str, Any]) -> None:
    path, client = garbled
    async with opened(path, client) as socket:
        assert socket.code is None
        for frame in frames:
            await socket.say(**frame)
        await socket.say(text=json.dumps({"type": "hello", "cursor": 0}))
        heard = []
        while not any(message["type"] in ("delta", "reset", "state") for message in heard):
            output = await socket.socket.receive_output(60)
            assert output["type"] == "websocket.send", output
            heard.append(json.loads(output["text"]))
        errors = [message["message"] for message in heard if message["type"] == "error"]
        assert all(errors)
        assert not any("Traceback" in words for words in errors)


@pytest.fixture
def garbled(transactional_db: None, team: Team, owner: User) -> tuple[str, Any]:
    run = make_run(team, status=Status.RUNNING)
    write(run.folder, [started(), measured(1)])
    ingest_spool(run)
    return f"/ws/runs/{run.pk}/", client_of(owner)
