"""Sign-in, sign-out, password, the set-up link's page, and the error pages, in the lab's look."""

import re
import threading

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.test import Client, RequestFactory
from django.utils import timezone
from django.views.defaults import server_error

from lab.teams.accounts import setup_link
from lab.teams.accounts.models import Membership, Role, SetupLink, Team, User
from tests.conftest import make_member

GOOD = {"name": "Ada Byron", "email": "ada@example.org", "password": "a long enough secret", "team_name": "Engines"}


@pytest.fixture
def link(db: None) -> str:
    path = setup_link.create_setup_link()
    assert path is not None
    return path


def test_the_set_up_link_makes_the_owner_and_signs_in(client: Client, link: str) -> None:
    assert "Set up your lab" in client.get(link).content.decode()
    response = client.post(link, GOOD)
    assert response.headers["Location"] == "/runs/"
    user = User.objects.get()
    assert (user.email, user.get_full_name(), user.check_password(GOOD["password"])) == ("ada@example.org", "Ada Byron", True)
    assert Membership.objects.get(user=user).role == Role.OWNER
    page = client.get("/runs/").content.decode()
    assert "Engines" in page
    assert "Welcome, Ada Byron" in page


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("email", "nonsense", "valid email"),
        ("email", "", "required"),
        ("password", "short", "too short"),
        ("password", "password1", "too common"),
        ("password", "1029384756", "entirely numeric"),
        ("team_name", "  ", "required"),
        ("name", "", "required"),
        ("team_name", "x" * 81, "80"),
    ],
)
def test_a_wrong_field_is_said_at_the_field_and_the_rest_is_kept(field: str, value: str, words: str, client: Client, link: str) -> None:
    response = client.post(link, {**GOOD, field: value})
    page = response.content.decode()
    assert response.status_code == 422
    assert words in page.split(f'id="id_{field}_error">')[1].split("</p>")[0]
    kept = "team_name" if field != "team_name" else "name"
    assert f'value="{GOOD[kept]}"' in page
    assert GOOD["password"] not in page
    assert not User.objects.exists()
    assert client.post(link, GOOD).status_code == 302  # the link is still good


def test_a_used_link_says_to_sign_in(client: Client, link: str) -> None:
    client.post(link, GOOD)
    response = Client().get(link)
    assert response.status_code == 410
    assert "Sign in" in response.content.decode()
    assert Client().post(link, {**GOOD, "email": "eve@example.org"}).status_code == 410
    assert User.objects.count() == 1


def test_an_expired_or_wrong_link_says_how_to_get_a_new_one(client: Client, link: str) -> None:
    SetupLink.objects.update(expires_at=timezone.now())
    for path in (link, "/setup/wrong/"):
        response = client.get(path)
        assert response.status_code == 410
        assert "cannot be used" in response.content.decode()
    assert "make up" in client.get(link).content.decode()


@pytest.mark.django_db(transaction=True)
def test_two_people_with_the_same_link_make_one_owner(link: str) -> None:
    gate, codes = threading.Barrier(2), []

    def go(email: str) -> None:
        gate.wait()
        codes.append(Client().post(link, {**GOOD, "email": email}).status_code)
        connection.close()

    threads = [threading.Thread(target=go, args=(f"{name}@example.org",)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [302, 410]
    assert User.objects.count() == 1


def test_signing_in_and_out(client: Client, owner: User) -> None:
    page = client.get("/accounts/login/").content.decode()
    assert 'href="/static/base/lab.css"' in page
    wrong = client.post("/accounts/login/", {"login": owner.email, "password": "wrong"})
    assert "are not correct" in wrong.content.decode()
    right = client.post("/accounts/login/?next=/workers/", {"login": owner.email, "password": "correct horse battery", "next": "/workers/"})
    assert right.headers["Location"] == "/workers/"
    assert client.get("/runs/").status_code == 200
    assert "Your runs continue" in client.get("/accounts/logout/").content.decode()
    client.post("/accounts/logout/")
    assert client.get("/runs/").status_code == 302


def test_nobody_can_register_on_their_own(client: Client, db: None) -> None:
    client.post("/accounts/signup/", {"email": "eve@example.org", "password1": "a long enough secret", "password2": "a long enough secret"})
    assert not User.objects.exists()
    assert "Sign up" not in client.get("/accounts/login/").content.decode()


def test_the_password_can_be_changed(as_owner: Client, owner: User) -> None:
    page = as_owner.get("/accounts/password/change/").content.decode()
    assert "Change password" in page
    assert 'class="rail"' in page
    sent = {"oldpassword": "correct horse battery", "password1": "another fine secret", "password2": "another fine secret"}
    assert as_owner.post("/accounts/password/change/", sent).status_code == 302
    owner.refresh_from_db()
    assert owner.check_password("another fine secret")


def test_somebody_without_a_team_is_told_what_to_do(client: Client, db: None) -> None:
    client.force_login(User.objects.create_user("lonely@example.org", "correct horse battery"))
    response = client.get("/runs/")
    assert response.status_code == 403
    assert "not a member of any team; ask an admin" in response.content.decode()
    assert "Sign out" in response.content.decode()
    assert "An owner or admin of a team can invite you, with your address <bdi>lonely@example.org</bdi>." in response.content.decode()
    assert 'href="/account/">Your account' in response.content.decode()
    assert client.get("/account/").status_code == client.get("/teams/join/").status_code == 200


def test_who_has_a_team_is_sent_to_the_start_page_instead(team: Team) -> None:
    client = Client()
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    page = client.get("/t/reasoning/launch/").content.decode()
    assert "Go to the start page" in page
    assert "can invite you" not in page


def test_a_missing_page_is_explained(as_owner: Client) -> None:
    response = as_owner.get("/nothing/here/")
    assert response.status_code == 404
    assert "Page not found" in response.content.decode()


def test_a_broken_page_is_explained_without_touching_the_database() -> None:
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    page = server_error(request).content.decode()  # this test has no database: any query would fail it
    assert "Runs are not affected" in page


def test_a_stale_form_is_explained(team: Team, owner: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner)
    response = strict.post("/demo/", {})
    assert response.status_code == 403
    assert "The form has expired" in response.content.decode()


INLINE = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)


@pytest.mark.parametrize(
    "url", ["/runs/", "/launch/", "/launch/grpo/", "/launch/demo/", "/workers/", "/accounts/password/change/", "/accounts/logout/"]
)
def test_no_page_needs_inline_script_or_style(url: str, as_owner: Client) -> None:
    found = INLINE.findall(as_owner.get(url).content.decode())
    assert found == []


@pytest.mark.feature(88)
def test_no_page_loads_anything_from_elsewhere(as_owner: Client) -> None:
    for url in ("/runs/", "/launch/grpo/", "/accounts/logout/"):
        page = as_owner.get(url).content.decode()
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
