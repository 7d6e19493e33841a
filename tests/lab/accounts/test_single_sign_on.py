"""Single sign-on against a real provider: who gets in, as whom, and who does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import requests
from allauth.socialaccount.models import SocialAccount
from django.test import Client
from django.utils import timezone
from environ import Env

from lab.lib.single_sign_on import build_sso_providers
from lab.teams.accounts.address_proof import is_verified, mark_verified
from lab.teams.accounts.models import Invitation, Team, User
from tests.lab.accounts.provider import CLIENT, SECRET, Provider
from tests.lab.accounts.signing_in import PASSWORD, choose_password, give_app, link_in_the_mail

START = "/accounts/oidc/sso/login/"


@pytest.fixture(scope="module")
def shared() -> Iterator[Provider]:
    running = Provider()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def provider(shared: Provider, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Provider:
    for name, value in {"URL": shared.url, "CLIENT": CLIENT, "SECRET": SECRET, "NAME": "Example ID"}.items():
        monkeypatch.setenv(f"LAB_OIDC_{name}", value)
    settings.SOCIALACCOUNT_PROVIDERS = build_sso_providers(Env())
    shared.claims, shared.audience = {}, CLIENT
    return shared


@pytest.fixture
def come(provider: Provider, client: Client) -> Callable[..., Any]:
    """Signs in over there as somebody with these claims, and comes back: ``come(email=…, verified=True)``."""

    def coming(email: str, verified: object = True, sub: str = "", **claims: object) -> Any:
        provider.claims = {"sub": sub or email, "email": email, "email_verified": verified, "name": "Ada Byron", **claims}
        there = client.post(START).headers["Location"]
        assert there.startswith(f"{provider.url}/authorize?")
        back = requests.get(there, allow_redirects=False, timeout=60).headers["Location"]
        return client.get(back.removeprefix("http://testserver"))

    return coming


@pytest.fixture
def invited(team: Team) -> str:
    email = "ada@example.org"
    Invitation.objects.create(team=team, email=email, digest="0" * 64, expires_at=timezone.now() + timedelta(days=1))
    return email


def inside(client: Client) -> User | None:
    return User.objects.filter(pk=client.session.get("_auth_user_id")).first()


def test_the_login_page_offers_it(provider: Provider, client: Client) -> None:
    page = client.get("/accounts/login/").content.decode()
    assert f'action="{START}' in page
    assert "Use Example ID" in page


def test_without_a_provider_there_is_none(client: Client, db: None) -> None:
    assert "oidc" not in client.get("/accounts/login/").content.decode()
    assert client.post(START).status_code == 404


@pytest.mark.feature(77)
def test_somebody_with_an_account_comes_in_and_is_known_from_then_on(come: Callable[..., Any], client: Client, owner: User) -> None:
    mark_verified(owner)
    assert come("Owner@example.org", sub="42").headers["Location"] == "/"
    assert inside(client) == owner
    client.logout()
    come("renamed@elsewhere.org", sub="42", verified=False)
    assert inside(client) == owner


def test_an_account_whose_address_nobody_has_proved_is_not_connected_and_the_way_in_is_shown(
    come: Callable[..., Any], client: Client, owner: User, invited: str
) -> None:
    """Somebody else may have made it; also where another invitation of the address is open."""
    User.objects.create_user(invited, PASSWORD)
    for email in (owner.email, invited):
        page = come(email)
        assert page.status_code == 403
        assert "Your address is not verified here" in page.content.decode()
        assert 'action="/accounts/password/reset/"' in page.content.decode()
        assert inside(client) is None
    assert not SocialAccount.objects.exists()
    client.post("/accounts/password/reset/", {"email": owner.email})  # the button of that page
    choose_password(Client(), link_in_the_mail(owner.email), "another horse entirely")
    come(owner.email)
    assert inside(client) == owner
    assert SocialAccount.objects.get().user == owner


def test_without_a_mail_server_the_way_in_is_by_connecting_it_oneself(come: Callable[..., Any], owner: User, settings: Any) -> None:
    settings.EMAIL_BACKEND = "lab.teams.accounts.mail.PrivateFolder"
    page = come(owner.email).content.decode()
    assert "no mail server" in page
    assert "connect Example ID on your account page" in page


@pytest.mark.parametrize("verified", [False, "false", None, 0, "no"])
def test_an_address_the_provider_has_not_verified_opens_no_account(verified: object, come: Callable[..., Any], client: Client, owner: User) -> None:
    assert "Accounts are made by invitation" in come(owner.email, verified=verified).content.decode()
    assert inside(client) is None
    assert not SocialAccount.objects.exists()


def test_a_stranger_does_not_get_in(come: Callable[..., Any], client: Client, owner: User) -> None:
    assert "Accounts are made by invitation" in come("eve@example.org").content.decode()
    assert inside(client) is None
    assert User.objects.count() == 1


def test_an_open_invitation_makes_the_account_and_lets_it_in(come: Callable[..., Any], client: Client, invited: str) -> None:
    come(invited)
    user = inside(client)
    assert user is not None
    assert (user.email, user.get_full_name(), user.has_usable_password()) == (invited, "Ada Byron", False)
    assert [(one.team.name, one.role) for one in user.memberships.all()] == [("Reasoning", "researcher")]
    assert Invitation.across_teams.get().accepted_by == user
    assert is_verified(user)
    assert client.get("/t/reasoning/runs/").status_code == 200


@pytest.mark.parametrize("change", [{"revoked_at": timezone.now()}, {"accepted_at": timezone.now()}, {"expires_at": timezone.now()}])
def test_a_closed_invitation_opens_nothing(change: dict[str, Any], come: Callable[..., Any], client: Client, invited: str) -> None:
    Invitation.across_teams.update(**change)
    come(invited)
    assert inside(client) is None


def test_an_invitation_needs_the_verified_address_too(come: Callable[..., Any], client: Client, invited: str) -> None:
    come(invited, verified=False)
    assert inside(client) is None
    assert not User.objects.exists()


def test_an_address_somebody_only_asked_to_change_to_opens_nothing(come: Callable[..., Any], client: Client, owner: User) -> None:
    owner.emailaddress_set.create(email="victim@example.org", verified=False, primary=False)  # type: ignore[attr-defined]
    come("victim@example.org")
    assert inside(client) is None


def test_a_closed_account_stays_closed(come: Callable[..., Any], client: Client, owner: User) -> None:
    mark_verified(owner)
    User.objects.update(is_active=False)
    come(owner.email)
    assert inside(client) is None


def test_the_second_factor_of_the_lab_is_asked_for(come: Callable[..., Any], client: Client, owner: User) -> None:
    give_app(owner)
    mark_verified(owner)
    assert come(owner.email).headers["Location"].startswith("/accounts/2fa/authenticate/")
    assert inside(client) is None


def test_a_token_for_somebody_else_is_not_taken(come: Callable[..., Any], provider: Provider, client: Client, owner: User) -> None:
    provider.audience = "another application"
    assert "Single sign-on failed" in come(owner.email).content.decode()
    assert inside(client) is None


def test_an_answer_nobody_asked_for_is_not_taken(provider: Provider, client: Client, owner: User) -> None:
    response = client.get(f"{START}callback/", {"code": "code0", "state": "made up"})
    assert "Single sign-on failed" in response.content.decode()
    assert inside(client) is None


def test_a_provider_that_is_away_is_said(client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    for name, value in {"URL": "http://127.0.0.1:1", "CLIENT": CLIENT, "SECRET": SECRET}.items():
        monkeypatch.setenv(f"LAB_OIDC_{name}", value)
    settings.SOCIALACCOUNT_PROVIDERS = build_sso_providers(Env())
    assert "could not be reached" in client.post(START).content.decode()
