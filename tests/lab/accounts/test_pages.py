"""The account pages: for everybody who is signed in, in a team or in none, without inline code."""

import re

import pytest
from django.test import Client

from lab.teams.accounts.models import Team, User
from tests.lab.accounts.signing_in import confirm, give_app

PAGES = [
    "/account/",
    "/accounts/2fa/",
    "/accounts/sessions/",
    "/accounts/email/",
    "/accounts/password/change/",
    "/accounts/3rdparty/",
    "/accounts/logout/",
]
SAFE = ["/accounts/2fa/webauthn/", "/accounts/2fa/webauthn/add/", "/accounts/2fa/recovery-codes/", "/accounts/2fa/totp/deactivate/"]
INLINE = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)


@pytest.fixture
def lonely(db: None) -> User:
    return User.objects.create_user("lonely@example.org", "correct horse battery", first_name="Ada")


@pytest.mark.parametrize("page", PAGES)
def test_somebody_without_a_team_has_an_account(page: str, client: Client, lonely: User) -> None:
    client.force_login(lonely)
    response = client.get(page)
    assert response.status_code == 200
    assert 'class="rail"' not in response.content.decode()
    assert "lonely@example.org" in response.content.decode()


@pytest.mark.parametrize("page", PAGES)
def test_somebody_in_a_team_keeps_its_rail(page: str, as_owner: Client) -> None:
    found = as_owner.get(page).content.decode()
    assert 'class="rail"' in found
    assert INLINE.findall(found) == []


def test_pages_of_a_second_factor_hold_no_inline_code(as_owner: Client, owner: User) -> None:
    confirm(as_owner)
    pages = [as_owner.get("/accounts/2fa/totp/activate/").content.decode()]
    give_app(owner)
    for path in SAFE:
        response = as_owner.get(path)
        assert response.status_code == 200, path
        pages.append(response.content.decode())
    assert [INLINE.findall(page) for page in pages] == [[]] * len(pages)


def test_signed_out_pages_hold_no_inline_code(client: Client, db: None) -> None:
    for path in ("/accounts/login/", "/accounts/password/reset/", "/accounts/password/reset/done/", "/accounts/signup/", "/accounts/inactive/"):
        assert INLINE.findall(client.get(path).content.decode()) == [], path


def test_the_name_is_changed_and_a_wrong_one_is_kept_in_the_field(as_owner: Client, owner: User, team: Team) -> None:
    assert as_owner.post("/account/", {"name": "Ada King Lovelace"}).status_code == 302
    owner.refresh_from_db()
    assert (owner.first_name, owner.last_name) == ("Ada", "King Lovelace")
    for wrong in ("", "x" * 151, "null\0character"):
        response = as_owner.post("/account/", {"name": wrong})
        assert response.status_code == 422
        assert "field-error" in response.content.decode()
    assert "Reasoning" in response.content.decode()


def test_pages_that_are_found_by_nobody_else(client: Client, db: None) -> None:
    for page in [*(one for one in PAGES if "logout" not in one), *SAFE]:
        assert client.get(page).headers["Location"].startswith("/accounts/login/"), page
