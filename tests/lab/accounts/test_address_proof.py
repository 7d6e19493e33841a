"""An address counts as verified by mail only; with the proof, whatever somebody else may have set up falls, and without it nothing is given away."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.core import mail
from django.test import Client

from lab.edges.api import tokens
from lab.teams.accounts import setup_link
from lab.teams.accounts.address_proof import is_verified, mark_verified
from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from tests.lab.accounts.signing_in import PASSWORD, choose_password, code_of, confirm, give_app, link_in_the_mail, sign_in

NEW = "another horse entirely"


def reset(email: str, client: Client | None = None) -> Client:
    client = client or Client()
    client.post("/accounts/password/reset/", {"email": email})
    choose_password(client, link_in_the_mail(email), NEW)
    return client


def test_the_first_owner_is_mailed_the_proof(client: Client, db: None) -> None:
    path = setup_link.create_setup_link()
    client.post(path, {"name": "Ada", "email": "ada@example.org", "password": PASSWORD, "team_name": "Engines"})
    user = User.objects.get()
    assert not is_verified(user)
    assert "not verified" in client.get("/account/").content.decode()
    choose_password(client, link_in_the_mail("ada@example.org"), NEW)
    assert is_verified(user)
    sign_in(client, user.email, NEW)
    assert "not verified" not in client.get("/account/").content.decode()
    assert Entry.across_teams.filter(action="email.verify", label="ada@example.org").exists()


def test_without_a_mail_server_the_first_owner_is_told_so(client: Client, db: None, settings: Any, tmp_path: Any) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "lab.teams.accounts.mail.PrivateFolder", str(tmp_path / "mail")
    path = setup_link.create_setup_link()
    client.post(path, {"name": "Ada", "email": "ada@example.org", "password": PASSWORD, "team_name": "Engines"})
    page = client.get("/account/").content.decode()
    assert "this lab has no mail server" in page
    assert "Send the link" not in page
    assert not (tmp_path / "mail").exists()
    client.post("/account/address/verify/")
    assert "addresses cannot be verified" in client.get("/account/").content.decode()


def test_the_proof_is_mailed_again_and_not_more_often_than_every_three_minutes(as_owner: Client, owner: User) -> None:
    for words in ("A link was sent to owner@example.org", "less than three minutes ago"):
        response = as_owner.post("/account/address/verify/", follow=True)
        assert words in response.content.decode()
    assert [one.to for one in mail.outbox] == [["owner@example.org"]]
    assert "the address has not been verified yet" in str(mail.outbox[0].body)
    mark_verified(owner)
    assert "already verified" in as_owner.post("/account/address/verify/", follow=True).content.decode()


@pytest.mark.django_db(transaction=True)
def test_with_the_proof_falls_whatever_was_set_up_before(owner: User, team: Team) -> None:
    give_app(owner)
    Authenticator.objects.create(user=owner, type=Authenticator.Type.WEBAUTHN, data={"name": "thief's", "credential": {}})
    SocialAccount.objects.create(user=owner, provider="sso", uid="thief")
    _, secret = tokens.create_access_token(team, owner, "thief's", ["runs.read"], None)
    thief = Client()
    thief.force_login(owner)
    thief.post("/accounts/email/", {"action_add": "", "email": "thief@example.org"})
    page = Client().get(link_of_reset(owner), follow=True).content.decode()
    assert "Second factors, passkeys, connections to single sign-on and access tokens set up earlier are removed" in page
    reset(owner.email)
    assert is_verified(owner)
    assert not Authenticator.objects.filter(user=owner).exists()
    assert not SocialAccount.objects.filter(user=owner).exists()
    assert list(EmailAddress.objects.filter(user=owner).values_list("email", flat=True)) == [owner.email]
    assert tokens.find_usable_token(secret) is None
    assert thief.get("/account/").status_code == 302
    assert sign_in(Client(), owner.email).status_code == 200  # the password from before
    mine = Client()
    assert sign_in(mine, owner.email, NEW).headers["Location"] == "/"
    gone = Entry.across_teams.filter(action="account.reset", object_id=str(owner.pk)).first()
    assert gone is not None
    assert gone.details["removed"]["tokens"] == 1


def link_of_reset(user: User) -> str:
    Client().post("/accounts/password/reset/", {"email": user.email})
    return link_in_the_mail(user.email)


def test_a_mailbox_alone_takes_no_second_factor_from_a_verified_account(owner: User, team: Team) -> None:
    mark_verified(owner)
    give_app(owner)
    _, secret = tokens.create_access_token(team, owner, "laptop", ["runs.read"], None)
    page = Client().get(link_of_reset(owner), follow=True).content.decode()
    assert "Your second factor is still required" in page
    client = reset(owner.email)
    assert sign_in(client, owner.email, NEW).headers["Location"].startswith("/accounts/2fa/authenticate/")
    assert client.get("/account/").status_code == 302
    assert client.post("/accounts/2fa/authenticate/", {"code": code_of()}).status_code == 302
    assert client.get("/account/").status_code == 200
    assert Authenticator.objects.filter(user=owner).count() == 2
    assert tokens.find_usable_token(secret) is not None


def test_without_a_mail_server_a_reset_proves_nothing_and_removes_as_much(owner: User, settings: Any, tmp_path: Any) -> None:
    """The operator hands over the link, and could use it."""
    give_app(owner)
    link = link_of_reset(owner)
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "lab.teams.accounts.mail.PrivateFolder", str(tmp_path / "mail")
    choose_password(Client(), link, NEW)
    assert not is_verified(owner)
    assert not Authenticator.objects.filter(user=owner).exists()


def asked_for(client: Client, email: str) -> str:
    """Asks to change the address, and gives the path of the link that is mailed to the new one."""
    confirm(client)
    assert client.post("/accounts/email/", {"action_add": "", "email": email}).status_code == 302
    return link_in_the_mail(email.lower())


def test_a_changed_address_is_verified_by_the_mailed_link_while_signed_in(as_owner: Client, owner: User) -> None:
    mark_verified(owner)
    link = asked_for(as_owner, "Fresh@example.org")
    owner.refresh_from_db()
    assert owner.email == "owner@example.org"
    assert "fresh@example.org" in as_owner.get("/accounts/email/").content.decode()
    assert as_owner.post(link).status_code == 302
    owner.refresh_from_db()
    assert (owner.email, is_verified(owner)) == ("fresh@example.org", True)


def test_who_is_made_to_confirm_somebody_elses_change_does_not(as_owner: Client, owner: User, stranger: User) -> None:
    """The change was asked for in an account that is not theirs: it would take their address, and single sign-on their way in."""
    mark_verified(owner)
    link = asked_for(as_owner, "victim@example.org")
    other = Client()
    other.force_login(stranger)
    for client in (Client(), other):
        for response in (client.get(link), client.post(link)):
            assert response.status_code == 403
            assert "If it was not you, close this page" in response.content.decode()
    assert other.get("/account/").status_code == 200  # nor are they signed out of their own
    owner.refresh_from_db()
    assert owner.email == "owner@example.org"


def test_a_change_of_an_account_that_was_never_proved_leads_to_the_proof(as_owner: Client, owner: User) -> None:
    """Else the ways into it that somebody else has set up would outlive the proof."""
    give_app(owner)
    link = asked_for(as_owner, "fresh@example.org")
    answer = as_owner.post(link)
    owner.refresh_from_db()
    assert (owner.email, is_verified(owner)) == ("fresh@example.org", False)
    choose_password(as_owner, answer.headers["Location"].removeprefix("http://127.0.0.1:8000"), NEW)
    assert is_verified(owner)
    assert not Authenticator.objects.filter(user=owner).exists()


def test_an_address_that_got_an_account_meanwhile_stays_with_it(as_owner: Client, owner: User) -> None:
    for verified in (False, True):
        link = asked_for(as_owner, f"taken{verified}@example.org")
        asked = EmailAddress.objects.get(user=owner, primary=False)
        User.objects.create_user(f"Taken{verified}@example.org", PASSWORD)
        assert as_owner.post(link).status_code == 404  # the change was dropped
        asked.save(force_insert=True)  # as if it was asked for a moment later
        assert as_owner.get(link).status_code == 200
        assert as_owner.post(link, follow=True).status_code == 200
        owner.refresh_from_db()
        assert owner.email == "owner@example.org"
        mark_verified(owner)


def test_an_account_that_is_not_verified_keeps_its_address_whatever_its_page_is_sent(as_owner: Client, owner: User) -> None:
    confirm(as_owner)
    as_owner.post("/accounts/email/", {"action_add": "", "email": "fresh@example.org"})
    for act in ("action_remove", "action_primary", "action_send"):
        as_owner.post("/accounts/email/", {act: "", "email": owner.email})
    as_owner.post("/accounts/email/", {"action_primary": "", "email": "fresh@example.org"})
    owner.refresh_from_db()
    assert owner.email == "owner@example.org"
    assert not is_verified(owner)
    as_owner.post("/accounts/email/", {"action_remove": "", "email": "fresh@example.org"})
    assert EmailAddress.objects.filter(user=owner).values_list("email", "primary").get() == ("owner@example.org", True)


def test_a_second_factor_can_be_set_up_before_the_proof(as_owner: Client, owner: User) -> None:
    confirm(as_owner)
    assert as_owner.get("/accounts/2fa/totp/activate/").status_code == 200


def test_accounts_of_before_are_verified_only_where_a_provider_vouches_for_them(owner: User, teammate: User) -> None:
    mark_verified(owner)
    mark_verified(teammate)
    SocialAccount.objects.create(user=teammate, provider="sso", uid="1")
    import_module("lab.teams.accounts.migrations.0006_proved_addresses").unverify(apps, None)
    assert (is_verified(owner), is_verified(teammate)) == (False, True)
