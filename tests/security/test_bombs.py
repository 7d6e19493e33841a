"""Small files and bodies that would cost hours or gigabytes: each is refused in words, and somebody else's page does not wait for it.

One real web process for all of them; every bomb is sent while another team's page is asked again and again.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.conf import settings
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from lab.edges.api import tokens
from lab.lib.processes import ManagedProcess, wait_for
from lab.supervision.outside.received_spools import RunOpening, open_run, receive_spool_piece
from lab.teams.accounts.models import Team, User
from lab.training.runs.local_lab import SERVER_OPTIONS
from tests.lab.outside.test_receiving import lines
from tests.lab.supervisor.spools import rollout, started
from trainers.contract import spool

MOST_SECONDS = 3.0  # for somebody else's page, or SLOWER times what it takes on this machine without a bomb
SLOWER = 20
CSRF = "c" * 32
KEY = uuid.UUID(int=7)


@dataclass
class Answer:
    status: int
    text: str
    location: str


@dataclass
class Web:
    """A person, or a token, at a web process."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, path: str, body: bytes | None = None, kind: str = "") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {**self.headers, **({"Content-Type": kind} if kind else {})}
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(errors="replace"), answer.getheader("Location", "") or "")
        finally:
            connection.close()


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue()


def many_nulls(count: int) -> bytes:
    """One row whose list holds so many nulls."""
    nulls = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count, pa.int8()))
    return parquet(prompt=["p"], chosen=nulls, rejected=["r"])


def one_text_many_times(rows: int, size: int) -> bytes:
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * size]))
    return parquet(prompt=text, chosen=text, rejected=pa.array(["r"] * rows))


def nested(depth: int) -> bytes:
    value, kind = pa.array([1]), pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
        value = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), value)
    return parquet(prompt=["p"], chosen=value, rejected=["r"])


def files() -> Iterator[tuple[str, bytes, str]]:
    """(name, content, words of the refusal)."""
    yield "quotes.csv", b'prompt,"chosen",' + b'"' * 1000 + b"x\nrow\n", ""
    yield "columns.csv", b"a," * 2_000_000 + b"a\n1\n", "columns"
    yield "open quote.csv", b'prompt,chosen,rejected\n1,2,"' + b"x" * 11_000_000, "field larger"
    yield "nulls.parquet", many_nulls(60_000_000), "values in one row group"
    yield "fewer nulls.parquet", many_nulls(9_000_000), "values together"
    yield "dictionary.parquet", one_text_many_times(100_000, 1_000_000), "unpacked|when read|together|longer than"
    yield "nested.parquet", nested(300), "too deeply nested"
    yield "deep.json", b"[" * 200_000, "nested too deeply"
    yield "deep.jsonl", b'{"prompt":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n", "nested too deeply"
    yield "values.json", b"[" + b"[]," * 6_000_000 + b"[]]", "values"
    row = b'{"prompt":"p","chosen":"a","rejected":"b"}\n'
    yield "line.jsonl", row + b'{"prompt": "' + b"x" * 12_000_000 + b'"}\n', "longer than 10 MB"


def bomb(count: int) -> bytes:
    """A packed array of so many zeros."""
    return b"f" + b"z" + zlib.compress(bytes(4 * count), 9)


def bodies() -> Iterator[tuple[str, bytes, str]]:
    """(name, lines of a spool, words of the refusal)."""
    short = {"length": 4, "lengths": b"", "logprobs": b"", "entropies": b""}
    yield "array", lines(rollout(**short | {"ids": bomb(60_000_000)})), "more than"
    yield "unequal arrays", lines(rollout(logprobs=bomb(16_000))), "one for each token"
    many = {name: bomb(16_000) for name in ("ids", "lengths", "logprobs", "entropies", "mask", "weights", "ratios", "clipped")}
    yield "many arrays", lines(*[rollout(sample=sample, **many) for sample in range(2000)]), "far more than was sent"
    yield "depth", b'{"event":"rollout","rewards":' + b"[" * 2_000_000 + b"\n", "not an event"
    yield "values", b'{"event":"rollout","x":[' + b"NaN," * 1_800_000 + b"1]}\n", "not an event"
    yield "empty lines", b"\n" * 8_000_000, "not an event"
    names = ",".join(f'"m{number}":1' for number in range(300_000))
    yield "metrics", b'{"event":"metrics","attempt":1,"time":1.0,"step":1,"values":{' + names.encode() + b"}}\n", "metrics"


@dataclass
class Watch:
    """Asks somebody else's page until the bomb is over; ``slowest`` in seconds."""

    web: Web
    path: str
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def during(self, act: Callable[[], list[str]]) -> list[str]:
        """What was wrong with the bomb's answer."""
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.extend(act()))
        thread.start()
        while True:
            over = not thread.is_alive()
            begun = time.monotonic()
            if (status := self.web.ask(self.path).status) != 200:
                self.wrong.append(f"somebody else's page answered {status}")
            self.slowest = max(self.slowest, time.monotonic() - begun)
            if over:
                return found
            time.sleep(0.05)


@pytest.fixture
def port(start_process: Callable[..., ManagedProcess]) -> int:
    """Of a web process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    child = start_process(
        "web", "-m", "uvicorn", "lab.asgi:application", "--host", "127.0.0.1", "--port", str(number), "--log-level", "warning", *SERVER_OPTIONS
    )

    def answers() -> bool:
        try:
            return Web(number).ask("/health/").status == 200
        except OSError:
            return False

    assert wait_for(lambda: child.exit_code is not None or answers(), 120), "the web process does not answer"
    assert child.exit_code is None, child.last_lines(30)
    return number


def person(port: int, user: User) -> Web:
    client = Client()
    client.force_login(user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}; {settings.CSRF_COOKIE_NAME}={CSRF}"
    return Web(port, {"Cookie": cookie, "X-CSRFToken": CSRF})


def refused(name: str, answer: Answer, words: str) -> list[str]:
    if not 400 <= answer.status < 500:
        return [f"{name}: answered {answer.status}: {answer.text[:200]}"]
    return [] if any(one in answer.text for one in words.split("|")) else [f"{name}: refused without the words {words!r}: {answer.text[:2000]}"]


def test_a_bomb_is_refused_and_nobody_else_waits(port: int, team: Team, owner: User, stranger: User) -> None:
    mine, theirs = person(port, owner), person(port, stranger)
    token = tokens.create_access_token(team, owner, "script", ["runs.send"], None)[1]
    script = Web(port, {"Authorization": f"Bearer {token}"})
    run, _ = open_run(team, owner, RunOpening(KEY, "r", "grpo", "p", "t", 1, {}))
    receive_spool_piece(run, 0, good := lines(started(), rollout(completion="a" * 200_000 + "!")))
    path, imports = "/t/elsewhere/runs/", "/t/reasoning/datasets/import/"

    def upload(name: str, content: bytes, words: str) -> list[str]:
        answer = mine.ask(imports, encode_multipart(BOUNDARY, {"file": named(name, content)}), MULTIPART_CONTENT)
        if answer.status == 302:  # its first rows are harmless
            answer = mine.ask(answer.location)
            if answer.status == 200:  # the row that is none is named, the others can be used
                told = not words or ("invalid row" in answer.text and any(one in answer.text for one in words.split("|")))
                return [] if told else [f"{name}: its mapping does not say {words!r}: {answer.text[:2000]}"]
        return refused(name, answer, words)

    def send(name: str, content: bytes, words: str) -> list[str]:
        return refused(name, script.ask(f"/api/v1/outside/runs/{KEY}/events?offset={len(good)}", content, "application/x-ndjson"), words)

    def begin(name: str, content: bytes, words: str) -> list[str]:
        return refused(name, script.ask("/api/v1/outside/runs", content, "application/json"), words)

    def search(name: str, pattern: str) -> list[str]:
        answer = mine.ask(f"/t/reasoning/rollouts/?re={pattern}")
        return [] if answer.status == 200 else [f"{name}: answered {answer.status}"]

    opening = json.dumps({"key": str(KEY), "name": "x", "config": {"a": 0}}).encode()
    acts: list[tuple[str, Callable[[], list[str]]]] = [(one[0], lambda one=one: upload(*one)) for one in files()]  # type: ignore[misc]
    acts += [(one[0], lambda one=one: send(*one)) for one in bodies()]  # type: ignore[misc]
    acts += [
        ("depth of a config", lambda: begin("depth of a config", opening.replace(b"0}", b"[" * 100_000), "nested too deeply")),
        ("NaN in a config", lambda: begin("NaN in a config", opening.replace(b"0}", b"NaN}"), "config.a")),
        ("Infinity in a config", lambda: begin("Infinity in a config", opening.replace(b"0}", b"-Infinity}"), "config.a")),
        ("1e999 in a config", lambda: begin("1e999 in a config", opening.replace(b"0}", b"1e999}"), "config.a")),
        ("regex", lambda: search("regex", "(a*)*(a*)*(a*)*b")),
        ("regex with references", lambda: search("regex with references", "(a%2B)(a%2B)(a%2B)\\3\\2\\1b")),
    ]
    usual = max(timed(theirs, path) for _ in range(6))
    allowed, complaints = max(MOST_SECONDS, SLOWER * usual), list[str]()
    for name, act in acts:
        watch = Watch(theirs, path)
        complaints += watch.during(act) + [f"{name}: {what}" for what in watch.wrong]
        if watch.slowest > allowed:
            complaints.append(f"{name}: somebody else's page took {watch.slowest:.1f} s, {usual:.2f} s without it")
    assert not complaints, "\n".join(complaints)
    assert run.folder.joinpath(spool.SPOOL).read_bytes() == good
    assert all(process.memory_info().rss < 1 << 30 for process in psutil.Process().children(recursive=True))


def timed(web: Web, path: str) -> float:
    begun = time.monotonic()
    web.ask(path)
    return time.monotonic() - begun


def named(name: str, content: bytes) -> io.BytesIO:
    file = io.BytesIO(content)
    file.name = name
    return file
