"""A second factor: set up, asked for at sign-in, taken away; teams that ask for one."""

import base64
import re

import pytest
from allauth.mfa.models import Authenticator
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.test import Client

from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.accounts.second_factor import has_second_factor, needs_second_factor, open_to_their_members
from lab.teams.accounts.sessions import list_session_keys
from lab.urls import websocket_urlpatterns
from tests.conftest import make_member
from tests.lab.accounts.signing_in import PASSWORD, SECRET, code_of, confirm, give_app, sign_in

PAGE = {"Accept": "text/html"}


def test_setting_up_an_authenticator_app_shows_its_secret_and_recovery_codes(as_owner: Client, owner: User) -> None:
    first = as_owner.get("/accounts/2fa/totp/activate/")
    assert first.headers["Location"].startswith("/accounts/reauthenticate/")
    confirm(as_owner)
    page = as_owner.get("/accounts/2fa/totp/activate/").content.decode()
    [secret] = re.findall(r"data-secret>([A-Z2-7]+)<", page)
    assert base64.b64decode(re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)[0]).startswith(b"<?xml")
    wrong = as_owner.post("/accounts/2fa/totp/activate/", {"code": "000000"})
    assert "Incorrect code" in wrong.content.decode()
    assert not has_second_factor(owner)
    right = as_owner.post("/accounts/2fa/totp/activate/", {"code": code_of(secret)})
    assert right.headers["Location"] == "/accounts/2fa/recovery-codes/"
    assert has_second_factor(owner)
    assert len(re.findall(r"<li>\d{8}</li>", as_owner.get("/accounts/2fa/recovery-codes/").content.decode())) == 10


def test_secrets_are_stored_sealed(owner: User) -> None:
    give_app(owner)
    for row in Authenticator.objects.filter(user=owner):
        assert SECRET not in str(row.data)
        assert row.wrap().validate_code("000000") is False


def test_signing_in_asks_for_the_code(client: Client, owner: User) -> None:
    give_app(owner)
    assert sign_in(client, owner.email, next="/workers/").headers["Location"].startswith("/accounts/2fa/authenticate/")
    assert client.get("/runs/").status_code == 302
    assert "Incorrect code" in client.post("/accounts/2fa/authenticate/", {"code": "000000"}).content.decode()
    assert client.post("/accounts/2fa/authenticate/", {"code": code_of()}).headers["Location"] == "/workers/"
    assert client.get("/runs/").status_code == 200


def test_a_code_works_once_and_so_does_a_recovery_code(owner: User) -> None:
    give_app(owner)
    spare = Authenticator.objects.get(user=owner, type="recovery_codes").wrap().get_unused_codes()[0]
    codes = (code_of(), spare)
    for code in codes:
        for inside in (True, False):
            client = Client()
            sign_in(client, owner.email)
            client.post("/accounts/2fa/authenticate/", {"code": code})
            assert (client.get("/runs/").status_code == 200) is inside


def test_guessing_codes_ends(client: Client, owner: User) -> None:
    give_app(owner)
    sign_in(client, owner.email)
    for _ in range(5):
        client.post("/accounts/2fa/authenticate/", {"code": "000000"})
    assert "Too many" in client.post("/accounts/2fa/authenticate/", {"code": code_of()}).content.decode()
    assert client.get("/runs/").status_code == 302


def test_taking_it_away_asks_who_one_is_and_takes_the_recovery_codes_along(client: Client, owner: User) -> None:
    give_app(owner)
    sign_in(client, owner.email)
    client.post("/accounts/2fa/authenticate/", {"code": code_of()})
    response = client.post("/accounts/2fa/totp/deactivate/")
    assert response.headers["Location"].startswith("/accounts/reauthenticate/")
    assert has_second_factor(owner)
    confirm(client)
    assert client.post("/accounts/2fa/totp/deactivate/").status_code == 302
    assert not Authenticator.objects.filter(user=owner).exists()


@pytest.mark.django_db(transaction=True)
def test_the_first_factor_ends_sessions_that_a_password_alone_began(as_owner: Client, owner: User) -> None:
    elsewhere = Client()
    elsewhere.force_login(owner)
    confirm(as_owner)
    [secret] = re.findall(r"data-secret>([A-Z2-7]+)<", as_owner.get("/accounts/2fa/totp/activate/").content.decode())
    as_owner.post("/accounts/2fa/totp/activate/", {"code": code_of(secret)})
    assert as_owner.get("/runs/").status_code == 200
    assert elsewhere.get("/runs/").status_code == 302
    assert list_session_keys(owner) == [as_owner.session.session_key]


@pytest.fixture
def closed(team: Team) -> Team:
    team.requires_mfa = True
    team.save()
    return team


def test_a_team_that_asks_for_one_leads_there_and_says_why(closed: Team, as_owner: Client, owner: User) -> None:
    response = as_owner.get("/t/reasoning/runs/", headers=PAGE)
    assert response.headers["Location"] == "/t/reasoning/accounts/2fa/"
    page = as_owner.get(response.headers["Location"], headers=PAGE).content.decode()
    assert "Team Reasoning requires a second factor" in page
    assert 'class="rail"' not in page  # nothing of the team, its rail neither
    give_app(owner)
    assert as_owner.get("/t/reasoning/runs/", headers=PAGE).status_code == 200
    assert "requires a second factor" not in as_owner.get("/t/reasoning/accounts/2fa/").content.decode()


@pytest.mark.parametrize("path", ["/runs/", "/rollouts/", "/label/", "/datasets/", "/launch/", "/"])
def test_nothing_of_such_a_team_is_reached_without(path: str, closed: Team, as_owner: Client) -> None:
    for headers in ({}, {"HX-Request": "true", "Accept": "text/html"}):
        response = as_owner.get(f"/t/reasoning{path}", headers=headers)
        assert response.status_code == 403
        assert response.json()["message"].startswith("Team Reasoning requires")
    assert as_owner.post(f"/t/reasoning{path}", {}, content_type="application/json").status_code in (403, 405)


def test_the_other_teams_of_a_person_stay_open(closed: Team, as_owner: Client, owner: User) -> None:
    other = Team.objects.create(name="Open", slug="open")
    Membership.objects.create(team=other, user=owner, role=Role.VIEWER)
    assert as_owner.get("/t/open/runs/").status_code == 200
    page = as_owner.get("/account/").content.decode()
    assert "/t/open/" in page
    assert "Team Reasoning requires a second factor" in page


def test_who_needs_one(closed: Team, owner: User, teammate: User) -> None:
    give_app(owner)
    assert [needs_second_factor(closed.memberships.get(user=one)) for one in (owner, teammate)] == [False, True]
    assert [one.user for one in open_to_their_members(closed.memberships.all())] == [owner]
    closed.requires_mfa = False
    closed.save()
    assert not needs_second_factor(closed.memberships.get(user=teammate))


def test_recovery_codes_alone_are_none(owner: User) -> None:
    give_app(owner)
    Authenticator.objects.filter(user=owner, type="totp").delete()
    assert not has_second_factor(owner)


async def closing_code(user: User, team: Team, seconds: float) -> int | None:
    """With which a socket of the team's runs is closed to the person within the seconds; None when it stays open."""
    scope = {"type": "websocket", "path": f"/ws/teams/{team.pk}/", "headers": [], "user": user, "session": None}
    socket = ApplicationCommunicator(URLRouter(websocket_urlpatterns), scope)
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output(60))["type"] == "websocket.accept"
    code = None
    while code is None and not await socket.receive_nothing(seconds):
        code = (await socket.receive_output(1)).get("code")
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})
    await socket.wait(60)
    return code


@pytest.mark.django_db(transaction=True)
async def test_sockets_of_such_a_team_are_refused_without() -> None:
    team = await Team.objects.acreate(name="Closed", slug="closed", requires_mfa=True)
    user = await sync_to_async(make_member)("socket@example.org", team)
    assert await closing_code(user, team, 60) == 4404
    await sync_to_async(give_app)(user)
    assert await closing_code(user, team, 0.5) is None


def test_a_password_alone_does_not_pass_the_second_factor_by_another_door(client: Client, owner: User) -> None:
    """The half-way state of signing in opens no page of the account either."""
    give_app(owner)
    sign_in(client, owner.email, PASSWORD)
    for path in ("/account/", "/accounts/2fa/", "/accounts/sessions/", "/accounts/password/change/", "/accounts/2fa/recovery-codes/"):
        assert client.get(path).headers["Location"].startswith("/accounts/login/"), path
