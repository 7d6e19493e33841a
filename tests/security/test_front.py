"""What stands before Django: whose word on an address counts, how much may be sent, and a key and cookies that cannot be guessed or taken over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.test import Client

from lab.edges.api import tokens
from lab.edges.api.credentials import is_admitted
from lab.lib.body_limit import BodyLimit
from lab.lib.proxies import TrustedProxies, parse_proxy_networks
from lab.lib.secret_key import refuse_weak
from lab.teams.accounts.models import Team
from lab.teams.accounts.sessions import end_sessions
from tests.conftest import make_member

READ = """
import json, django
from django.conf import settings
django.setup()
print(json.dumps({name: getattr(settings, name) for name in %r}))
"""


def scope(client: str = "203.0.113.9", **headers: str) -> dict[str, Any]:
    written = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "path": "/", "headers": written, "client": (client, 1), "scheme": "http"}


async def seen(trusted: list[str], given: dict[str, Any]) -> dict[str, Any]:
    found: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(scope)

    await TrustedProxies(app, parse_proxy_networks(trusted))(given, None, None)
    return dict(found[0])


async def test_nobody_but_a_trusted_proxy_says_who_is_asking() -> None:
    lie = {"x_forwarded_for": "10.9.9.9", "x_forwarded_proto": "https", "x_forwarded_host": "evil.example.org", "forwarded": "for=1.2.3.4"}
    found = await seen(["10.0.0.0/8"], scope("203.0.113.9", **lie))
    assert (found["client"][0], found["scheme"], found["headers"]) == ("203.0.113.9", "http", [])
    assert (await seen([], scope("127.0.0.1", **lie)))["client"][0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("written", "asker"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("6.6.6.6, 198.51.100.7", "198.51.100.7"),  # what stands first is the client's own word
        ("198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("nonsense", "10.0.0.1"),
        ("198.51.100.7, nonsense", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
async def test_behind_proxies_the_last_address_that_is_none_of_them_is_asking(written: str, asker: str) -> None:
    found = await seen(["10.0.0.0/8"], scope("10.0.0.1", x_forwarded_for=written, x_forwarded_proto="https"))
    assert (found["client"][0], found["scheme"]) == (asker, "https")


def test_a_proxy_that_is_no_network_stops_the_start() -> None:
    with pytest.raises(ValueError, match=r"LAB_PROXY must be addresses or networks"):
        parse_proxy_networks(["everybody"])


class Answer:
    def __init__(self) -> None:
        self.status, self.body, self.read, self.looked_up = 0, b"", 0, 0

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")


async def sent(
    pieces: list[bytes], announced: int | None = None, path: str = "/t/team/datasets/import/", admitted: bool | Exception = True
) -> Answer:
    """A request whose body comes in pieces, before an application that reads it all and answers 200 with its size."""
    answer = Answer()
    left = list(pieces)

    async def receive() -> Any:
        if not left:
            return {"type": "http.disconnect"}
        answer.read += len(left[0])
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            if not message["more_body"]:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                return

    async def admits(scope: Any) -> bool:
        answer.looked_up += 1
        if isinstance(admitted, Exception):
            raise admitted
        return admitted

    headers = [(b"cookie", b"a=b"), (b"authorization", b"Bearer made-up")]
    headers += [(b"content-length", str(announced).encode())] if announced is not None else []
    limit = BodyLimit(app, {"/datasets/import/": 1000}, 100, admits)
    await limit({"type": "http", "path": path, "headers": headers}, receive, answer.send)
    return answer


async def test_what_is_announced_too_large_is_not_read() -> None:
    answer = await sent([b"x" * 500] * 10, announced=5000)
    assert (answer.status, answer.read) == (413, 0)
    assert b"split the file" in answer.body


async def test_what_turns_out_too_large_is_not_read_to_its_end() -> None:
    """Chunked, or announced smaller than it is."""
    for announced in (None, 900):
        answer = await sent([b"x" * 400] * 50, announced)
        assert answer.status == 413
        assert answer.read <= 1200


async def test_what_fits_goes_through_and_other_addresses_take_less() -> None:
    assert (await sent([b"x" * 400, b"x" * 400], 800)).status == 200
    assert (await sent([b"x" * 101], 101, path="/runs/")).status == 413
    assert (await sent([b"x" * 99], 99, path="/runs/", admitted=False)).status == 200
    assert (await sent([b"x" * 101], 101, path="/t/team/runs//datasets/import/")).status == 413


@pytest.mark.parametrize("announced", [101, None])
async def test_a_header_that_looks_like_credentials_stores_no_large_file(announced: int | None) -> None:
    answer = await sent([b"x" * 101], announced, admitted=False)
    assert (answer.status, answer.looked_up) == (413, 1)
    assert b"sign in or send a valid access token" in answer.body
    assert (await sent([b"x" * 101], announced, admitted=True)).status == 200


async def test_who_asks_is_looked_up_for_large_bodies_only() -> None:
    for path, size in (("/t/team/datasets/import/", 100), ("/runs/", 100), ("/runs/", 101), ("/t/team/datasets/import/", 1001)):
        for announced in (size, None):
            assert (await sent([b"x" * size], announced, path=path)).looked_up == 0


async def test_with_the_database_away_a_large_body_is_refused_for_now() -> None:
    assert (await sent([b"x" * 101], 101, admitted=OperationalError("away"))).status == 503


@pytest.mark.django_db(transaction=True)
async def test_a_session_or_a_token_that_lets_somebody_in_is_a_credential_and_nothing_else_is() -> None:
    team = await Team.objects.acreate(name="Reasoning", slug="reasoning")
    user = await sync_to_async(make_member)("sender@example.org", team)
    client = Client()
    await sync_to_async(client.force_login)(user)
    token, secret = await sync_to_async(tokens.create_access_token)(team, user, "laptop", ["runs.read"], None)
    name, key = settings.SESSION_COOKIE_NAME, client.session.session_key
    for header, value, admitted in (
        ("cookie", f"{name}={key}", True),
        ("cookie", f"{name}={key}x", False),
        ("cookie", f'{name}="\\000abcdefgh"', False),
        ("cookie", "a=b", False),
        ("authorization", f"Bearer {secret}", True),
        ("authorization", f"Bearer {secret}x", False),
        ("authorization", secret, False),
    ):
        assert await is_admitted(scope(**{header: value})) is admitted, (header, value)
    await sync_to_async(tokens.revoke_access_token)(token, user)
    await sync_to_async(end_sessions)(user)
    assert not await is_admitted(scope(cookie=f"{name}={key}", authorization=f"Bearer {secret}"))


async def test_a_program_is_refused_in_the_form_of_the_api() -> None:
    answer = await sent([b"x" * 101], 101, path="/api/v1/runs")
    assert (answer.status, json.loads(answer.body)["status"]) == (413, 413)
    assert (await sent([b"x"], -1, path="/runs/")).status == 400


@pytest.mark.parametrize(
    "key", ["", "short", "x" * 60, "ab" * 40, "django-insecure-" + "kq7)4m" * 12, "changeme-0123456789-abcdefghijklmnopqrstuvwxyz-0123456789"]
)
def test_a_key_that_can_be_guessed_is_refused_with_the_fix(key: str) -> None:
    """Label Studio GHSA-f475-x83m-rx5m: a key in the source, and anybody signs in as anybody."""
    with pytest.raises(ImproperlyConfigured, match="openssl rand") as refused:
        refuse_weak(key)
    assert len(key) < 10 or key not in str(refused.value)
    refuse_weak("T9vS0o2m8Qp4Zr1Wb6Yc3Xd5Ef7Gh9Jk0Lm2Np4Qr6St8Uv1Wx3Yz5")


def test_a_server_does_not_start_with_a_weak_key() -> None:
    env = {**os.environ, "SECRET_KEY": "x" * 64}
    done = subprocess.run([sys.executable, "-c", "import lab.asgi"], cwd=settings.BASE, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "SECRET_KEY is made of 1 different characters" in done.stderr


def test_a_worker_does_not_start_with_a_weak_key() -> None:
    """It has the same key, and what it signs opens the same doors."""
    env = {**os.environ, "SECRET_KEY": "x" * 64}
    command = [sys.executable, "manage.py", "worker", "--queues", "nobody-sends-here"]
    done = subprocess.run(command, cwd=settings.BASE, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "SECRET_KEY is made of 1 different characters" in done.stderr


def settings_with(**environment: str) -> dict[str, Any]:
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SESSION_COOKIE_NAME", "CSRF_COOKIE_NAME", "SECURE_HSTS_SECONDS", "SECURE_SSL_REDIRECT")
    env = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", READ % (names,)], cwd=settings.BASE, env=env, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_behind_tls_cookies_are_for_this_host_and_https_alone() -> None:
    found = settings_with(LAB_URL="https://lab.example.org", LAB_PROXY="10.0.0.0/8")
    assert found["SESSION_COOKIE_SECURE"]
    assert found["CSRF_COOKIE_SECURE"]
    assert found["SECURE_SSL_REDIRECT"]
    assert (found["SESSION_COOKIE_NAME"], found["CSRF_COOKIE_NAME"]) == ("__Host-sessionid", "__Host-csrftoken")
    assert found["SECURE_HSTS_SECONDS"] >= 180 * 24 * 3600
    assert settings_with(LAB_URL="http://127.0.0.1:8000")["SECURE_HSTS_SECONDS"] == 0
