"""A code of an authenticator app works once: not again in its time, not an older one after it, not twice at the same moment."""

from __future__ import annotations

import threading

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.db import connection
from django.test import Client

from lab.teams.accounts.codes import accept_code
from lab.teams.accounts.models import User
from tests.lab.accounts.signing_in import SECRET, code_of, confirm, give_app, sign_in

START = 1_700_000_010.0  # seconds; the beginning of a half-minute
HALF = 30


def code_at(moment: float) -> str:
    return format_hotp_value(hotp_value(SECRET, int(moment) // HALF))


def at(moment: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allauth.mfa.totp.internal.auth.time.time", lambda: moment)


def comes_in(owner: User, code: str) -> bool:
    client = Client()
    sign_in(client, owner.email)
    client.post("/accounts/2fa/authenticate/", {"code": code})
    return client.get("/runs/").status_code == 200


def test_a_code_is_good_once_while_the_clock_still_allows_it(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    app = give_app(owner)
    code = code_at(START + HALF)
    at(START, monkeypatch)  # the phone is half a minute ahead
    assert accept_code(app, code)
    for later in (0, 31, 59):
        at(START + later, monkeypatch)
        assert not accept_code(app, code), later


def test_signing_in_takes_a_code_once_over_its_three_half_minutes(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    give_app(owner)
    code = code_at(START + HALF)
    for seconds, inside in ((0, True), (31, False), (59, False)):
        monkeypatch.setattr("allauth.mfa.totp.internal.auth.yield_hotp_counters_from_time", counters(START + seconds))
        monkeypatch.setattr("lab.teams.accounts.codes.yield_hotp_counters_from_time", counters(START + seconds), raising=False)
        connection.cursor().execute("DELETE FROM lab_cache")  # what allauth remembers for half a minute is over
        assert comes_in(owner, code) is inside, seconds


def counters(moment: float) -> object:
    return lambda: iter(int(moment) // HALF + shift for shift in (-1, 0, 1))


def test_an_older_code_is_not_good_after_a_newer_one(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    app = give_app(owner)
    at(START, monkeypatch)
    assert accept_code(app, code_at(START))
    assert not accept_code(app, code_at(START - HALF))
    assert accept_code(app, code_at(START + HALF))
    assert not accept_code(app, "000000")
    assert not accept_code(app, "")


@pytest.mark.django_db(transaction=True)
def test_of_two_who_send_one_code_at_once_one_gets_in(owner: User) -> None:
    app = give_app(owner)
    code, barrier, outcomes = code_of(), threading.Barrier(4), []

    def use() -> None:
        mine = Authenticator.objects.get(pk=app.pk)
        barrier.wait(60)
        try:
            outcomes.append(accept_code(mine, code))
        finally:
            connection.close()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(outcomes) == [False, False, False, True]


@pytest.mark.django_db(transaction=True)
def test_the_code_that_sets_an_app_up_signs_nobody_in(as_owner: Client, owner: User) -> None:
    confirm(as_owner)
    page = as_owner.get("/accounts/2fa/totp/activate/").content.decode()
    secret = page.partition("data-secret>")[2].partition("<")[0]
    code = code_of(secret)
    assert as_owner.post("/accounts/2fa/totp/activate/", {"code": code}).status_code == 302
    assert not comes_in(owner, code)


def test_one_that_signed_in_does_not_confirm_either(client: Client, owner: User) -> None:
    give_app(owner)
    sign_in(client, owner.email)
    code = code_of()
    assert client.post("/accounts/2fa/authenticate/", {"code": code}).status_code == 302
    assert "Incorrect code" in client.post("/accounts/2fa/reauthenticate/", {"code": code}).content.decode()
