"""Logs as JSON, and what a line says it belongs to."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from lab.celery import set_up_log
from lab.edges.api import tokens
from lab.lib import processes
from lab.lib.json_log import JsonFormatter, format_note
from lab.lib.log_context import ContextFilter, LogContext, RequestContext, get_log_context, use_log_context
from lab.lib.redaction import HIDDEN, RedactionFilter
from lab.supervision.supervisor import supervise
from lab.teams.accounts.models import Team, User
from tests.lab.supervisor.spools import make_run

SECRET = "hf_abcdefghijklmnopqrstuvwxyz"


class Lines(logging.Handler):
    """What a handler of the settings would write."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.addFilter(RedactionFilter())
        self.addFilter(ContextFilter())
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(self.format(record))

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    log = logging.getLogger("lab.of.tests")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


log = logging.getLogger("lab.of.tests")


def test_a_line_is_one_object_whatever_the_message_holds(lines: Lines) -> None:
    log.warning('step %d\n"quoted" \x1b[31m\u2028', 7)
    [text], [line] = lines.written, lines.read()
    assert text.isascii()
    assert "\n" not in text
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "WARNING", "logger": "lab.of.tests", "message": 'step 7\n"quoted" \x1b[31m\u2028'}
    assert json.loads(format_note("worker", "ready"))["message"] == "ready"


def test_an_exception_is_a_field_of_its_line_and_secrets_are_in_neither(lines: Lines) -> None:
    try:
        raise ValueError(f"token {SECRET}")
    except ValueError:
        log.exception("asked with %s", SECRET)
    log.info("where", stack_info=True)
    with use_log_context(LogContext(request=SECRET)):
        log.info("later")
    first, second, _ = lines.read()
    assert first["message"] == f"asked with {HIDDEN}"
    assert first["exception"].startswith("Traceback")
    assert first["exception"].endswith(f"ValueError: token {HIDDEN}")
    assert "test_json_log.py" in second["exception"]
    assert SECRET not in "".join(lines.written[:2])


def answer(app: Any, *headers: tuple[bytes, bytes]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        log.info("access")  # as a server does
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    asyncio.run(RequestContext(app)({"type": "http", "headers": list(headers)}, receive, send))
    return sent


def learn() -> None:
    get_log_context().team = "12"
    log.info("view")


async def application(scope: Any, receive: Any, send: Any) -> None:
    await sync_to_async(learn)()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"X-Request-Id", b"of the application")]})


def test_a_request_has_an_id_in_all_its_lines_and_in_its_answer(lines: Lines) -> None:
    [first] = answer(application)
    [second] = answer(application, (b"x-request-id", b"from-the-proxy_1"))
    [third] = answer(application, (b"x-request-id", b"two words"))
    ids = [dict(message["headers"])[b"x-request-id"].decode() for message in (first, second, third)]
    assert ids[1] == "from-the-proxy_1"
    assert len({ids[0], ids[2], "two words"}) == 3
    assert all(len(message["headers"]) == 1 for message in (first, second, third))
    assert [(line["message"], line["request"], line["team"]) for line in lines.read()] == [
        (message, request, "12")
        for request in ids
        for message in ("view", "access")  # the server's own line too knows what the view has learnt
    ]
    log.info("after")
    assert "request" not in lines.read()[-1]


def test_a_record_with_djangos_request_on_it_is_no_trouble(lines: Lines) -> None:
    log.info("gone", extra={"request": object(), "run": 5})
    log.info("named", extra={"run": "other"})
    assert "request" not in lines.read()[0]
    assert lines.read()[1]["run"] == "other"


@pytest.mark.django_db
def test_pages_and_the_api_say_whose_request_it_is(as_owner: Client, team: Team, owner: User) -> None:
    run = make_run(team)
    with use_log_context(LogContext("a")) as page:
        assert as_owner.get(f"/t/reasoning/runs/{run.pk}/").status_code == 200
    assert (page.team, page.run) == (str(team.pk), str(run.pk))
    secret = tokens.create_access_token(team, owner, "reading", ["runs.read"], None)[1]
    with use_log_context(LogContext("b")) as script:
        response = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
    assert (response.headers["X-Request-Id"], script.team) == ("b", str(team.pk))
    with use_log_context(LogContext("c")) as stranger:
        assert Client().get(f"/t/reasoning/runs/{run.pk}/").status_code == 302
    assert (stranger.team, stranger.run) == ("", "")


@pytest.mark.django_db
def test_a_supervisors_lines_name_the_run_and_its_team(team: Team, monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    run = make_run(team)
    monkeypatch.setattr(supervise, "claim_next_run", lambda run_id, worker: (run, "owner"))
    monkeypatch.setattr(supervise.Supervisor, "work", lambda self: log.info("claimed"))
    assert supervise.run_supervisor(str(run.pk), "worker")
    log.info("over")
    claimed, over = lines.read()
    assert (claimed["run"], claimed["team"]) == (str(run.pk), str(team.pk))
    assert "run" not in over


def test_a_workers_log_follows_the_setting(settings: Any) -> None:
    for form, kind in (("json", True), ("text", False)):
        settings.LOG_FORMAT = form
        logger = logging.Logger("celery")
        logger.addHandler(logging.StreamHandler())
        set_up_log(logger)
        assert isinstance(logger.handlers[0].formatter, JsonFormatter) == kind
        assert any(isinstance(one, ContextFilter) for one in logger.handlers[0].filters)


def test_the_setting_decides_for_every_process_and_a_wrong_one_stops_the_start() -> None:
    code = "import logging.config; from lab.settings import LOGGING; logging.config.dictConfig(LOGGING); logging.error('one\\ntwo')"

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], env={**os.environ, **more}, capture_output=True, text=True, check=False)

    assert json.loads(run(LAB_LOG_FORMAT="json").stderr)["message"] == "one\ntwo"
    assert run().stderr.endswith("ERROR root: one\ntwo\n")
    assert "LAB_LOG_FORMAT 'xml' must be text or json" in run(LAB_LOG_FORMAT="xml").stderr


def test_a_large_log_of_an_earlier_start_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOG_LIMIT", 3)
    log_file, before = tmp_path / "redis.log", tmp_path / "redis.log.1"
    processes.set_aside_large_log(log_file)
    log_file.write_text("abc")
    processes.set_aside_large_log(log_file)
    assert not before.exists()
    for text in ("older", "newer"):
        log_file.write_text(text)
        processes.set_aside_large_log(log_file)
        assert not log_file.exists()
        assert before.read_text() == text
