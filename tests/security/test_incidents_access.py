"""Incidents of access: registration, passwords, requests across sites, other people's profiles; named after what happened elsewhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from lab.teams.accounts.models import Team, User
from lab.teams.accounts.permissions import TABLE
from tests.conftest import make_member
from tests.lab.cast import Cast, make_cast
from tests.security.people import client_of, routes
from tests.security.test_matrix import entry

EVIL = "https://evil.example.org"


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "access")


@pytest.mark.django_db
def test_mlflow_cve_2026_2635_a_fresh_installation_has_no_account() -> None:
    call_command("migrate", verbosity=0)
    assert not User.objects.exists()
    source = (settings.BASE / "lab/teams/accounts/models.py").read_text()
    assert set(re.findall(r"set_password\(([^)]*)\)", source)) <= {"password"}, "no password is written down"


@pytest.mark.django_db
@pytest.mark.parametrize("password", ["password1", "12345678901234", "policylab", "qwertyuiop", "short", "owner@example.org"])
def test_mlflow_cve_2025_11200_a_weak_password_is_refused(password: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(password, User(email="owner@example.org", first_name="Owner"))


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/accounts/signup/", "/accounts/3rdparty/signup/"])
def test_label_studio_cve_2023_47116_nobody_registers(path: str) -> None:
    fields = {"email": "new@example.org", "password1": "a long enough one 77", "password2": "a long enough one 77"}
    for response in (Client().get(path), Client().post(path, fields)):
        assert response.status_code < 500
    assert not User.objects.filter(email="new@example.org").exists()


def test_mlflow_cve_2025_1473_every_change_needs_a_token_of_the_page(cast: Cast, owner: User) -> None:
    """CSRF: a foreign page can make the browser post a form, or JSON as text, with the cookie."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(owner)
    open_to_all, walked = [], 0
    for route in routes():
        path = route.path(cast)
        if entry(route).write not in TABLE or not path:
            continue
        walked += 1
        for kind in ("application/x-www-form-urlencoded", "application/json", "text/plain"):
            response = client.post(path, "{}", content_type=kind, headers={"Origin": EVIL})
            if response.status_code != 403:
                open_to_all.append(f"{route.name} as {kind}: {response.status_code}")
    assert not open_to_all, "\n".join(open_to_all)
    assert walked > 40


def test_clearml_cve_2024_24593_a_foreign_page_with_a_token_is_still_foreign(cast: Cast, owner: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    client.get("/runs/")
    token = client.cookies[settings.CSRF_COOKIE_NAME].value
    path = reverse("tag", args=[cast.rollout.pk])
    foreign = client.post(path, {"tag": "x", "csrfmiddlewaretoken": token}, headers={"Origin": EVIL})
    own = client.post(path, {"tag": "x", "csrfmiddlewaretoken": token}, headers={"Origin": "http://testserver"})
    assert foreign.status_code == 403
    assert own.status_code in (200, 302)


@pytest.mark.django_db
def test_aim_cve_2024_7760_no_answer_lets_other_origins_read(as_owner: Client) -> None:
    for path in ("/runs/", "/health/", "/static/base/lab.css", "/api/v1/openapi.json"):
        for method in ("get", "options"):
            response = getattr(as_owner, method)(path, headers={"Origin": EVIL, "Access-Control-Request-Method": "POST"})
            assert not [name for name in response.headers if name.lower().startswith("access-control-")], path


@pytest.mark.django_db
def test_the_api_takes_no_cookie_for_a_token(as_owner: Client) -> None:
    response = as_owner.get("/api/v1/me")
    assert response.status_code in (401, 404)
    assert as_owner.post("/api/v1/outside/runs", "{}", content_type="application/json").status_code == 401


@pytest.mark.django_db
@pytest.mark.parametrize(
    "there", [EVIL, "//evil.example.org", "/\\evil.example.org", "https:evil.example.org", "javascript:alert(1)", "\thttps://evil.example.org"]
)
def test_signing_in_leads_to_no_other_site(there: str, owner: User) -> None:
    fields = {"login": owner.email, "password": "correct horse battery", "next": there}
    response = Client().post(f"/accounts/login/?next={there}", fields)
    assert response.status_code == 302
    assert response["Location"].startswith("/")
    assert not response["Location"].startswith(("//", "/\\"))


@pytest.mark.django_db
def test_a_host_that_is_not_the_labs_is_refused_before_anything_is_written(owner: User, mailoutbox: list[Any]) -> None:
    """Poisoned links in mails: what a Host header says stands in none."""
    response = Client().post("/accounts/password/reset/", {"email": owner.email}, headers={"Host": "evil.example.org"})
    assert response.status_code == 400
    assert mailoutbox == []


@pytest.mark.django_db
def test_links_in_mails_are_the_labs_own(owner: User, mailoutbox: list[Any]) -> None:
    headers = {"X-Forwarded-Host": "evil.example.org", "X-Forwarded-Proto": "https"}
    Client().post("/accounts/password/reset/", {"email": owner.email}, headers=headers)
    assert len(mailoutbox) == 1
    assert "evil.example.org" not in mailoutbox[0].body


def test_label_studio_cve_2026_22033_another_persons_account_is_out_of_reach(team: Team, owner: User) -> None:
    """Addresses of an account name no person: they are about whoever is signed in."""
    named = [route.name for route in routes() if route.name.startswith(("account", "mfa_", "token")) and "user_id" in route.parameters]
    assert named == []
    theirs = client_of(make_member("other@example.org", team))
    theirs.get("/account/")
    session = UserSession.objects.get(user__email="other@example.org")
    assert client_of(owner).post(reverse("account-session-end", args=[session.pk])).status_code == 404
    assert theirs.get("/account/").status_code == 200


@pytest.mark.django_db
def test_signing_in_again_and_again_is_slowed_down(owner: User) -> None:
    codes = [Client().post("/accounts/login/", {"login": owner.email, "password": f"wrong {number}"}).status_code for number in range(25)]
    assert codes[0] == 200
    right = Client().post("/accounts/login/", {"login": owner.email, "password": "correct horse battery"})
    assert codes[-1] == 429 or right.status_code != 302


@pytest.mark.django_db
def test_a_session_is_a_new_one_after_signing_in(owner: User) -> None:
    """Fixation: what an attacker put into the browser before is not what is signed in."""
    client = Client()
    client.get("/accounts/login/")
    client.cookies[settings.SESSION_COOKIE_NAME] = "a" * 32
    client.post("/accounts/login/", {"login": owner.email, "password": "correct horse battery"})
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie.value != "a" * 32
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
