"""Where a person is signed in: listed, ended one by one, ended by a new password."""

import re

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.core import mail
from django.test import Client

from lab.teams.accounts.models import User
from lab.teams.accounts.sessions import end_sessions
from lab.teams.audit.models import Entry
from tests.lab.accounts.signing_in import PASSWORD, confirm, link_in_the_mail, sign_in

NEW = "another fine secret"


@pytest.fixture
def elsewhere(owner: User) -> Client:
    client = Client(headers={"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"})
    client.force_login(owner)
    assert client.get("/runs/").status_code == 200
    return client


def inside(client: Client) -> bool:
    return client.get("/runs/").status_code == 200


def test_sessions_are_listed_with_browser_and_address(elsewhere: Client, as_owner: Client) -> None:
    page = as_owner.get("/accounts/sessions/").content.decode()
    assert "Firefox on Linux" in page
    assert page.count("127.0.0.1</td>") == 2
    assert page.count("this one") == 1


def test_one_session_is_ended_and_no_other(elsewhere: Client, as_owner: Client, owner: User) -> None:
    third = Client()
    third.force_login(owner)
    as_owner.get("/account/")
    there = UserSession.objects.get(session_key=elsewhere.session.session_key)
    assert as_owner.post(f"/account/sessions/{there.pk}/end/").headers["Location"] == "/accounts/sessions/"
    assert [inside(client) for client in (elsewhere, as_owner, third)] == [False, True, True]


def test_ending_the_session_in_hand_signs_out(as_owner: Client) -> None:
    as_owner.get("/account/")
    here = UserSession.objects.get(session_key=as_owner.session.session_key)
    assert as_owner.post(f"/account/sessions/{here.pk}/end/").headers["Location"] == "/accounts/login/"
    assert not inside(as_owner)


def test_another_persons_session_is_not_found(elsewhere: Client, as_stranger: Client) -> None:
    theirs = UserSession.objects.get()
    for number in (theirs.pk, 10**25):
        assert as_stranger.post(f"/account/sessions/{number}/end/").status_code == 404
    assert inside(elsewhere)


def test_all_others_are_ended_at_once(elsewhere: Client, as_owner: Client) -> None:
    as_owner.get("/account/")
    as_owner.post("/accounts/sessions/")
    assert [inside(client) for client in (elsewhere, as_owner)] == [False, True]


def test_ending_sessions_reaches_those_that_no_list_holds(elsewhere: Client, as_owner: Client, owner: User, as_stranger: Client) -> None:
    UserSession.objects.all().delete()  # as after an upgrade
    assert end_sessions(owner, keep=as_owner.session.session_key) == 1
    assert [inside(client) for client in (elsewhere, as_owner, as_stranger)] == [False, True, True]
    assert end_sessions(owner) == 1
    assert not inside(as_owner)


def test_a_new_password_ends_the_other_sessions(elsewhere: Client, as_owner: Client, owner: User) -> None:
    key = elsewhere.session.session_key
    sent = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}
    assert as_owner.post("/accounts/password/change/", sent).status_code == 302
    assert [inside(client) for client in (elsewhere, as_owner)] == [False, True]
    assert not Session.objects.filter(session_key=key).exists()  # open sockets look for the session itself
    assert "password" in mail.outbox[-1].subject.lower()  # and its owner is told


def test_a_reset_by_mail_ends_all_sessions_and_works_once(elsewhere: Client, client: Client, owner: User) -> None:
    client.post("/accounts/password/reset/", {"email": owner.email})
    link = link_in_the_mail(owner.email)
    form = client.get(link).headers["Location"]
    assert client.post(form, {"password1": NEW, "password2": NEW}).status_code == 302
    assert not inside(elsewhere)
    assert not inside(client)  # the mail alone signs nobody in
    assert "no longer works" in Client().get(link, follow=True).content.decode()
    sign_in(client, owner.email, NEW)
    assert inside(client)


def test_a_reset_link_names_the_labs_own_address_whatever_host_was_asked(client: Client, owner: User, settings: pytest.FixtureRequest) -> None:
    settings.ALLOWED_HOSTS = ["*"]  # type: ignore[attr-defined]
    client.post("/accounts/password/reset/", {"email": owner.email}, headers={"Host": "evil.example"})
    assert "evil.example" not in str(mail.outbox[-1].body)
    assert link_in_the_mail(owner.email)


def test_ended_sessions_stand_in_the_audit_log(elsewhere: Client, as_owner: Client, owner: User) -> None:
    as_owner.get("/account/")
    as_owner.post("/accounts/sessions/")
    entry = Entry.across_teams.get(action="session.revoke", team=None)
    assert entry.actor == owner
    assert "Firefox" in entry.details["browser"]


def test_visits_are_noted_once_a_minute(as_owner: Client) -> None:
    as_owner.get("/account/")
    seen = UserSession.objects.get().last_seen_at
    as_owner.get("/account/")
    assert UserSession.objects.get().last_seen_at == seen


def test_an_address_is_changed_by_the_link_in_the_mail_only(as_owner: Client, owner: User) -> None:
    as_owner.post("/accounts/email/", {"action_add": "", "email": "new@example.org"})
    if not mail.outbox:
        confirm(as_owner)
        as_owner.post("/accounts/email/", {"action_add": "", "email": "new@example.org"})
    owner.refresh_from_db()
    assert owner.email == "owner@example.org"
    assert "new@example.org</strong> is not confirmed" in as_owner.get("/accounts/email/").content.decode()
    link = link_in_the_mail("new@example.org")
    Client().post("/accounts/password/reset/", {"email": "new@example.org"})
    assert "There is no account with this address" in str(mail.outbox[-1].body)  # a slip in typing hands nobody the account
    assert as_owner.get(link).status_code == 200  # a mail scanner that opens it changes nothing
    owner.refresh_from_db()
    assert owner.email == "owner@example.org"
    as_owner.post(link)
    owner.refresh_from_db()
    assert owner.email == "new@example.org"
    assert re.search("new@example.org", as_owner.get("/account/").content.decode())
