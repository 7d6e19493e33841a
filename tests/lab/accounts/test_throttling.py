"""Guessing ends, from one place and from many, and guesses of others lock nobody out."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from lab.teams.accounts import throttling
from lab.teams.accounts.devices import cookie_name
from lab.teams.accounts.models import User
from tests.lab.accounts.signing_in import PASSWORD, choose_password, code_of, give_app, link_in_the_mail, sign_in

WRONG, MANY = "are not correct", "Too many failed attempts"


def guess(email: str, source: str, times: int = 1) -> str:
    """What the last of several wrong guesses is answered, each in a new browser at the network address ``source``."""
    answers = [sign_in(Client(REMOTE_ADDR=source), email, "wrong guess").content.decode() for _ in range(times)]
    return str(answers[-1])


def test_five_wrong_passwords_stop_their_source_and_nobody_else(owner: User) -> None:
    assert WRONG in guess(owner.email, "10.0.0.1", 5)
    assert MANY in guess(owner.email, "10.0.0.1")
    assert MANY in sign_in(Client(REMOTE_ADDR="10.0.0.1"), owner.email).content.decode()
    assert sign_in(Client(REMOTE_ADDR="10.0.0.2"), owner.email).status_code == 302


def test_guesses_from_everywhere_end_and_a_known_browser_gets_through(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(throttling.RATES, "account", "8/h/key")
    known = Client(REMOTE_ADDR="10.1.0.1")
    assert sign_in(known, owner.email).status_code == 302
    known.post("/accounts/logout/")
    for number in range(8):
        assert WRONG in guess(owner.email, f"10.2.0.{number}")
    assert MANY in guess(owner.email, "10.2.0.99")
    assert MANY in sign_in(Client(REMOTE_ADDR="10.2.0.98"), owner.email).content.decode()
    known.defaults["REMOTE_ADDR"] = "10.2.0.1"
    assert sign_in(known, owner.email).status_code == 302, "from whichever network it comes"


def test_a_known_browser_is_counted_too_and_by_itself(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(throttling.RATES, "device", "3/h/key")
    known, other = Client(), Client()
    for client in (known, other):
        sign_in(client, owner.email)
        client.post("/accounts/logout/")
    for said in (WRONG, WRONG, WRONG, MANY):
        assert said in sign_in(known, owner.email, "wrong guess").content.decode()
    assert sign_in(other, owner.email).status_code == 302


@pytest.mark.parametrize("forged", ["", "x", "eyJpZCI6IngiLCJwZW9wbGUiOnt9fQ:1:x", "null", "\x7f"])
def test_a_browser_is_known_by_a_signed_cookie_of_this_person_and_password(owner: User, teammate: User, forged: str) -> None:
    guess(owner.email, "127.0.0.1", 5)
    stranger = Client()
    sign_in(stranger, teammate.email)  # somebody else's sign-in makes a browser known for them alone
    stranger.post("/accounts/logout/")
    assert MANY in sign_in(stranger, owner.email).content.decode()
    made_up = Client()
    made_up.cookies[cookie_name()] = forged
    assert MANY in sign_in(made_up, owner.email).content.decode()


def test_a_new_password_forgets_the_browsers_that_knew_the_old_one(owner: User) -> None:
    old, chooser = Client(), Client(REMOTE_ADDR="10.0.0.2")
    sign_in(old, owner.email)
    old.post("/accounts/logout/")
    chooser.post("/accounts/password/reset/", {"email": owner.email})
    choose_password(chooser, link_in_the_mail(owner.email), "another horse entirely")
    guess(owner.email, "127.0.0.1", 5)
    guess(owner.email, "10.0.0.2", 5)
    assert MANY in sign_in(old, owner.email, "another horse entirely").content.decode()
    assert sign_in(chooser, owner.email, "another horse entirely").status_code == 302, "who reads the mail is not kept out by guesses of others"


def test_who_is_signed_in_confirms_the_password_whatever_others_try(client: Client, owner: User) -> None:
    sign_in(client, owner.email)
    client.cookies.pop(cookie_name())
    guess(owner.email, "127.0.0.1", 5)
    assert client.post("/accounts/reauthenticate/", {"password": PASSWORD}).status_code == 302


def test_the_cookie_is_for_this_lab_alone_and_out_of_reach_of_scripts(client: Client, owner: User, settings: Any) -> None:
    assert cookie_name() == "device"
    settings.TLS = True
    cookie = sign_in(client, owner.email).cookies["__Host-device"]
    assert (cookie["httponly"], cookie["secure"], cookie["samesite"], cookie["path"], cookie["domain"]) == (True, True, "Lax", "/", "")
    assert PASSWORD not in cookie.value
    assert owner.email not in cookie.value


def test_behind_a_second_factor_more_guesses_are_let_by_and_they_end_too(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(throttling.RATES, "account", "3/h/key")
    monkeypatch.setitem(throttling.RATES, "guarded", "6/h/key")
    give_app(owner)
    for number in range(6):
        assert WRONG in guess(owner.email, f"10.2.0.{number}")
    assert MANY in guess(owner.email, "10.2.0.99")


def test_an_address_without_an_account_is_throttled_alike(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(throttling.RATES, "account", "7/h/key")
    said = [[MANY in guess(email, f"10.{net}.0.{number // 5}") for number in range(9)] for net, email in enumerate((owner.email, "no@example.org"))]
    assert said[0] == said[1]
    assert True in said[0]


def test_wrong_codes_of_somebody_with_the_password_keep_nobody_else_out(owner: User) -> None:
    give_app(owner)
    known = Client()
    sign_in(known, owner.email)
    known.post("/accounts/2fa/authenticate/", {"code": code_of()})
    known.post("/accounts/logout/")
    thief = Client(REMOTE_ADDR="10.0.0.1")
    sign_in(thief, owner.email)
    for _ in range(5):
        thief.post("/accounts/2fa/authenticate/", {"code": "000000"})
    assert "Too many wrong codes" in thief.post("/accounts/2fa/authenticate/", {"code": "000000"}).content.decode()
    for client in (known, Client()):
        sign_in(client, owner.email)
        assert "Incorrect code" in client.post("/accounts/2fa/authenticate/", {"code": "000000"}).content.decode()
