"""SAML single sign-on with responses that are really signed: who gets in, as whom, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.utils import timezone
from environ import Env
from lxml import etree
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Names

from lab.lib.content_policy import build_csp_directives
from lab.lib.saml_sign_on import build_saml_providers, list_saml_origins
from lab.teams.accounts.address_proof import is_verified, mark_verified
from lab.teams.accounts.models import Invitation, Team, User
from tests.lab.accounts.identity_provider import EMAIL, ENTITY, SIGN_IN, SPACES, IdentityProvider, Told, encode, request_id
from tests.lab.accounts.signing_in import give_app

START, ACS, FINISH = "/accounts/saml/sso/login/", "/accounts/saml/sso/acs/", "/accounts/saml/sso/acs/finish/"
UNASKED = "does not belong to a sign-in that was started here"
INVALID = "response is not valid"
WHY = {
    "unsigned": "is not signed",
    "for another lab": "for another application",
    "expired": "has expired",
    "of another provider": "comes from another",
}
SHARED, STRANGE = IdentityProvider(), IdentityProvider()


@pytest.fixture
def provider(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> IdentityProvider:
    path = tmp_path / "metadata.xml"
    path.write_text(SHARED.metadata())
    given = {"METADATA": str(path), "ENTITY": ENTITY, "NAME": "Example ID", "DOMAINS": "example.org"}
    for name, value in given.items():
        monkeypatch.setenv(f"LAB_SAML_{name}", value)
    settings.SOCIALACCOUNT_PROVIDERS = build_saml_providers(Env(), "http://testserver")
    return SHARED


@pytest.fixture
def asked(provider: IdentityProvider, client: Client, db: None) -> Told:
    """Somebody has pressed the button: what a right response to that says."""
    there = client.post(START).headers["Location"]
    assert there.startswith(f"{SIGN_IN}?SAMLRequest=")
    return Told(to=request_id(there))


def send(client: Client, xml: str | bytes) -> Any:
    """As a page of the provider does: a form from another site, with no cookie of the session; then the redirect, with it."""
    elsewhere = Client(enforce_csrf_checks=True)
    answer = elsewhere.post(ACS, {"SAMLResponse": encode(xml), "RelayState": ""}, headers={"Origin": "https://id.example.org"})
    if answer.status_code != 302:
        return answer
    assert answer.headers["Location"] == FINISH
    client.cookies["saml-acs-session"] = answer.cookies["saml-acs-session"].value
    return client.get(FINISH)


def inside(client: Client) -> User | None:
    return User.objects.filter(pk=client.session.get("_auth_user_id")).first()


def refused(client: Client, response: Any, why: str) -> None:
    assert response.status_code == 403
    assert why in response.content.decode()
    assert inside(client) is None
    assert not SocialAccount.objects.exists()


@pytest.fixture
def known(owner: User) -> User:
    mark_verified(owner)
    return owner


def test_the_sign_in_page_offers_it(provider: IdentityProvider, client: Client, db: None) -> None:
    page = client.get("/accounts/login/").content.decode()
    assert f'action="{START}' in page
    assert "Use Example ID" in page


def test_without_settings_there_is_none(client: Client, db: None) -> None:
    assert "saml" not in client.get("/accounts/login/").content.decode()
    for address in (START, ACS):
        assert client.post(address).status_code == 404
    for address in (FINISH, "/accounts/saml/sso/metadata/", "/accounts/saml/sso/sls/"):
        assert client.get(address).status_code == 404


def test_of_a_form_only_what_is_read_is_kept(provider: IdentityProvider, client: Client, db: None) -> None:
    sent = {"SAMLResponse": "answer", "RelayState": "s" * 10_000, "more": "x" * 100_000, **{f"field{number}": "x" for number in range(500)}}
    key = client.post(ACS, sent).cookies["saml-acs-session"].value
    kept = SessionStore(key).load()["request"]
    assert "answer" in str(kept)
    assert len(str(kept)) < 5_000


@pytest.mark.feature(77)
def test_somebody_with_an_account_comes_in_and_is_known_from_then_on(asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    response = send(client, provider.answer(asked.but(email="Owner@example.org")))
    assert response.headers["Location"] == "/"
    assert inside(client) == known
    account = SocialAccount.objects.get()
    assert (account.provider, account.uid) == (ENTITY, "42")
    client.logout()
    again = Told(to=request_id(client.post(START).headers["Location"]))
    send(client, provider.answer(again.but(email="renamed@elsewhere.org")))
    assert inside(client) == known


def test_a_signature_over_the_whole_response_is_enough(asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    send(client, provider.sign(provider.response(asked, provider.assertion(asked))))
    assert inside(client) == known


@pytest.mark.feature(77)
def test_an_open_invitation_makes_the_account(asked: Told, provider: IdentityProvider, client: Client, team: Team) -> None:
    Invitation.objects.create(team=team, email="ada@example.org", digest="0" * 64, expires_at=timezone.now() + timedelta(days=1))
    send(client, provider.answer(asked.but(email="ada@example.org")))
    user = inside(client)
    assert user is not None
    assert (user.email, user.get_full_name(), user.has_usable_password(), is_verified(user)) == ("ada@example.org", "Ada Byron", False, True)
    assert [one.team for one in user.memberships.all()] == [team]


def test_a_stranger_does_not_get_in(asked: Told, provider: IdentityProvider, client: Client, db: None) -> None:
    assert "Accounts are made by invitation" in send(client, provider.answer(asked)).content.decode()
    assert inside(client) is None
    assert not User.objects.exists()


def test_an_account_whose_address_nobody_has_proved_is_not_connected(asked: Told, provider: IdentityProvider, client: Client, owner: User) -> None:
    refused(client, send(client, provider.answer(asked)), "Your address is not verified here")


@pytest.mark.parametrize(("said", "gets_in"), [("true", True), ("false", False), ("", False)])
def test_an_address_counts_if_its_domain_is_named_or_the_provider_says_so(
    said: str, gets_in: bool, asked: Told, provider: IdentityProvider, client: Client, known: User, settings: Any
) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["saml"]["APPS"][0]["settings"]["verified_domains"] = ["elsewhere.org"]
    send(client, provider.answer(asked.but(attributes={"email_verified": said} if said else {})))
    assert (inside(client) == known) is gets_in


@pytest.mark.parametrize("email", ["owner@example.org.evil.com", "owner@evil.com", '"owner@evil.com"@example.org'])
def test_other_domains_are_not_taken_for_the_named_one(email: str, asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    send(client, provider.answer(asked.but(email=email.replace('"', "&quot;"))))
    assert inside(client) is None


def test_the_second_factor_of_the_lab_is_asked_for(asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    give_app(known)
    assert send(client, provider.answer(asked)).headers["Location"].startswith("/accounts/2fa/authenticate/")
    assert inside(client) is None


def test_a_closed_account_stays_closed(asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    User.objects.update(is_active=False)
    send(client, provider.answer(asked))
    assert inside(client) is None


@pytest.mark.feature(77)
def test_a_response_is_taken_once_and_in_the_browser_that_asked(asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    xml = provider.answer(asked)
    thief = Client()
    assert UNASKED in send(thief, xml).content.decode()  # before the person has used it; it is spent with that
    send(client, provider.answer(asked))
    assert inside(client) == known
    client.logout()
    client.post(START)
    for replayed in (xml, provider.answer(asked)):
        assert UNASKED in send(client, replayed).content.decode()
    assert inside(client) is None


def test_an_assertion_used_before_is_refused_in_another_wrapping(asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    """An assertion that names no request would fit into an unsigned response to any."""
    loose = provider.sign(provider.assertion(asked.but(to="")))
    send(client, provider.response(asked, loose))
    assert inside(client) == known
    thief = Client()
    own = Told(to=request_id(thief.post(START).headers["Location"]))
    assert UNASKED in send(thief, provider.response(own, loose)).content.decode()
    assert inside(thief) is None


def test_what_the_provider_starts_is_refused(provider: IdentityProvider, client: Client, known: User) -> None:
    refused(client, send(client, provider.answer(Told())), UNASKED)


def wrong_key(provider: IdentityProvider, told: Told) -> str:
    return STRANGE.answer(told)


def unsigned(provider: IdentityProvider, told: Told) -> str:
    return provider.response(told, provider.assertion(told))


def changed(provider: IdentityProvider, told: Told) -> str:
    return provider.answer(told.but(email="mallory@example.org")).replace("mallory@example.org", "owner@example.org")


def wrapped(provider: IdentityProvider, told: Told) -> str:
    """A signed assertion of somebody else's, and an unsigned one before it."""
    forged = provider.assertion(told.but(assertion="_forged"))
    return provider.response(told, provider.sign(provider.assertion(told.but(email="mallory@example.org"))), more=forged)


def doctype(provider: IdentityProvider, told: Told) -> str:
    return '<!DOCTYPE r [<!ENTITY a "owner@example.org">]>' + provider.answer(told)


def bomb(provider: IdentityProvider, told: Told) -> str:
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return f'<!DOCTYPE r [<!ENTITY l0 "lol">{levels}]>' + provider.answer(told).replace("<saml:Issuer>", "<saml:Issuer>&l9;", 1)


def external(provider: IdentityProvider, told: Told) -> str:
    return '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + provider.answer(told).replace("<saml:Issuer>", "<saml:Issuer>&x;", 1)


FORGED: dict[str, Callable[[IdentityProvider, Told], str | bytes]] = {
    "unsigned": unsigned,
    "signed with another key": wrong_key,
    "changed after it was signed": changed,
    "wrapped": wrapped,
    "signed with SHA-1": lambda provider, told: provider.response(told, provider.sign(provider.assertion(told), Names.RSA_SHA1, Names.SHA1)),
    "for another lab": lambda provider, told: provider.answer(told.but(audience="https://other.example.org/metadata")),
    "expired": lambda provider, told: provider.answer(told.but(minutes=-10)),
    "for another address": lambda provider, told: provider.answer(told.but(acs="https://other.example.org/acs/")),
    "of another provider": lambda provider, told: provider.answer(told.but(issuer="https://evil.example.org")),
    "to another request inside": lambda provider, told: provider.answer(told.but(inside="_another")),
    "with a document type": doctype,
    "XML bomb": bomb,
    "external entity": external,
    "no XML": lambda provider, told: b"\xff\xfe<<<",
    "empty": lambda provider, told: "",
    "encrypted for nobody": lambda provider, told: provider.response(told, f"<saml:EncryptedAssertion {SPACES}/>"),
}


@pytest.mark.feature(77)
@pytest.mark.parametrize("forgery", FORGED)
def test_a_response_that_is_not_right_is_refused(forgery: str, asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    response = send(client, FORGED[forgery](provider, asked))
    refused(client, response, INVALID)
    assert WHY.get(forgery, "") in response.content.decode()
    send(client, provider.answer(asked))  # it cost the person nothing
    assert inside(client) == known


def test_a_comment_does_not_cut_a_name(asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    """owner@example.org<!---->.evil.com is signed as a whole; read up to the comment it would be somebody else."""
    xml = provider.answer(asked.but(email="owner@example.org.evil.com", name="42.evil"))
    split = xml.replace("owner@example.org.evil.com", "owner@example.org<!---->.evil.com").replace("42.evil", "42<!---->.evil")
    assert split.count("<!---->") == 2  # canonical XML leaves comments out: the signature still holds
    assert "Accounts are made by invitation" in send(client, split).content.decode()  # the whole name's
    assert not SocialAccount.objects.exists()


def test_a_name_that_does_not_last_is_refused(asked: Told, provider: IdentityProvider, client: Client, known: User) -> None:
    transient = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
    refused(client, send(client, provider.answer(asked.but(name_format=transient))), "a transient NameID")


def test_large_and_many_responses_are_refused(asked: Told, client: Client, known: User) -> None:
    assert send(client, "x" * 300_000).status_code == 413
    codes = [client.post(ACS, {"SAMLResponse": "x"}).status_code for _ in range(31)]
    assert (codes[0], codes[-1]) == (302, 429)


def test_what_the_provider_has_to_know_is_published(provider: IdentityProvider, client: Client, db: None) -> None:
    response = client.get("/accounts/saml/sso/metadata/")
    assert response.headers["Content-Type"] == "text/xml"
    root = etree.fromstring(response.content)
    assert root.get("entityID") == "http://testserver/accounts/saml/sso/metadata/"
    assert [one.get("Location") for one in root.iter("{*}AssertionConsumerService")] == ["http://testserver/accounts/saml/sso/acs/"]
    assert not list(root.iter("{*}SingleLogoutService"))


def test_a_provider_that_is_away_is_said(settings: Any, monkeypatch: pytest.MonkeyPatch, client: Client, db: None) -> None:
    monkeypatch.setenv("LAB_SAML_METADATA", "http://127.0.0.1:1/metadata")
    monkeypatch.setenv("LAB_SAML_ENTITY", ENTITY)
    settings.SOCIALACCOUNT_PROVIDERS = build_saml_providers(Env(), "http://testserver")
    assert "metadata could not be read" in client.post(START).content.decode()


def test_the_sign_in_form_may_lead_to_the_provider(provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "https://id.example.org" in build_csp_directives(list_saml_origins(Env()))["form-action"]
    monkeypatch.setenv("LAB_SAML_METADATA", "https://meta.example.org/all.xml")
    monkeypatch.setenv("LAB_SAML_ORIGINS", "https://login.example.org")
    assert build_csp_directives(list_saml_origins(Env()))["form-action"][1:] == ["https://login.example.org", "https://meta.example.org"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ENTITY": ""}, "not set: LAB_SAML_ENTITY"),
        ({"METADATA": ""}, "not set: LAB_SAML_METADATA"),
        ({"METADATA": "/nowhere.xml"}, "cannot be read"),
        ({"METADATA": "http://id.example.org/metadata"}, "use https or a file"),
        ({"ENTITY": "https://other.example.org"}, "describes no identity provider"),
        ({"ENTITY": "x" * 201}, "more than 200 characters"),
        ({"ATTRIBUTES": "mail"}, "'mail' is not one of uid="),
        ({"DOMAINS": "*.example.org"}, "is not a domain"),
    ],
)
def test_wrong_settings_stop_the_start(change: dict[str, str], said: str, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in change.items():
        monkeypatch.setenv(f"LAB_SAML_{name}", value)
    with pytest.raises(ImproperlyConfigured, match=re.escape(said)):
        build_saml_providers(Env(), "http://testserver")


@pytest.mark.parametrize("text", ["no XML", "<a/>", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'])
def test_a_file_that_is_no_metadata_stops_the_start(text: str, provider: IdentityProvider, tmp_path: Path) -> None:
    (tmp_path / "metadata.xml").write_text(text)
    with pytest.raises(ImproperlyConfigured, match="LAB_SAML_METADATA"):
        build_saml_providers(Env(), "http://testserver")


def test_attributes_are_named_by_the_operator(asked: Told, provider: IdentityProvider, client: Client, known: User, settings: Any) -> None:
    mapping = settings.SOCIALACCOUNT_PROVIDERS["saml"]["APPS"][0]["settings"]["attribute_mapping"]
    mapping |= {"uid": ["employee"], "email": [EMAIL]}
    send(client, provider.answer(asked.but(attributes={"employee": "7"})))
    assert SocialAccount.objects.get().uid == "7"
