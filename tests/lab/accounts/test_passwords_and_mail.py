"""What a password must be, how often one may be tried, what a stranger learns of who has an account, and where mail goes."""

import os
import stat
from pathlib import Path

import pytest
import redis
from allauth.account.models import EmailAddress
from django.contrib.auth.password_validation import validate_password
from django.core import mail
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.mail import send_mail
from django.db import IntegrityError, transaction
from django.test import Client
from environ import Env

from lab.lib.single_sign_on import build_sso_providers
from lab.teams.accounts.address_proof import mark_verified
from lab.teams.accounts.models import User
from tests.lab.accounts.signing_in import PASSWORD, sign_in


@pytest.mark.parametrize("password", ["short", "password1234", "10293847561029", "owner@example.org", "x" * 129, ""])
def test_a_weak_password_is_refused(password: str, as_owner: Client, owner: User) -> None:
    response = as_owner.post("/accounts/password/change/", {"oldpassword": PASSWORD, "password1": password, "password2": password})
    assert response.status_code == 200
    assert "field-error" in response.content.decode()
    owner.refresh_from_db()
    assert owner.check_password(PASSWORD)


def test_the_longest_password_is_accepted() -> None:
    validate_password("long enough " * 10)
    with pytest.raises(ValidationError, match="at most 128"):
        validate_password("long enough " * 11)


def test_trying_accounts_ends_for_the_address(client: Client, owner: User) -> None:
    for number in range(10):
        sign_in(client, f"nobody{number}@example.org", "wrong guess")
    assert "Too many failed attempts" in sign_in(client, owner.email).content.decode()
    assert sign_in(Client(REMOTE_ADDR="10.0.0.9"), owner.email).status_code == 302


def test_signing_in_works_with_redis_away(client: Client, owner: User, settings: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = redis.ConnectionPool.from_url("redis://127.0.0.1:1")
    assert "redis" not in settings.CACHES["default"]["BACKEND"].lower()  # type: ignore[attr-defined]
    monkeypatch.setattr(redis.Redis, "connection_pool", nowhere, raising=False)
    assert sign_in(client, owner.email).status_code == 302


def test_a_stranger_learns_nothing_about_who_has_an_account(owner: User) -> None:
    pages = [sign_in(Client(), email, "wrong guess").content.decode().replace(email, "") for email in (owner.email, "nobody@example.org")]
    assert len({page.split("<form", 2)[1].split("<input", 2)[2] for page in pages}) == 1
    answers = [Client().post("/accounts/password/reset/", {"email": email}) for email in (owner.email, "nobody@example.org")]
    assert len({(one.status_code, one.headers["Location"]) for one in answers}) == 1
    assert [one.to for one in mail.outbox] == [[owner.email], ["nobody@example.org"]]
    assert "There is no account with this address" in str(mail.outbox[1].body)


def test_a_mail_server_that_is_away_is_no_error_and_tells_nothing(client: Client, owner: User, settings: pytest.FixtureRequest) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"  # type: ignore[attr-defined]
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1  # type: ignore[attr-defined]
    answers = [client.post("/accounts/password/reset/", {"email": email}).headers["Location"] for email in (owner.email, "nobody@example.org")]
    assert answers == ["/accounts/password/reset/done/"] * 2


def test_mail_without_a_server_lies_in_a_folder_of_its_own(tmp_path: Path, settings: pytest.FixtureRequest) -> None:
    settings.EMAIL_BACKEND = "lab.teams.accounts.mail.PrivateFolder"  # type: ignore[attr-defined]
    settings.EMAIL_FILE_PATH = str(tmp_path / "mail")  # type: ignore[attr-defined]
    send_mail("Subject", "Text", None, ["a@example.org"])
    [file] = (tmp_path / "mail").iterdir()
    assert "Text" in file.read_text()
    assert stat.S_IMODE(os.stat(tmp_path / "mail").st_mode) == 0o700


def test_an_account_keeps_one_address_and_a_changed_one_is_not_verified(owner: User) -> None:
    assert EmailAddress.objects.filter(user=owner).values_list("email", "verified", "primary").get() == ("owner@example.org", False, True)
    mark_verified(owner)
    owner.email = "Changed@example.org"  # as a program may
    owner.save()
    assert EmailAddress.objects.filter(user=owner).values_list("email", "verified", "primary").get() == ("changed@example.org", False, True)
    assert sign_in(Client(), "changed@example.org").status_code == 302


def test_no_two_accounts_share_an_address_in_another_case(owner: User) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create_user("OWNER@example.org", PASSWORD)
    assert sign_in(Client(), owner.email).status_code == 302


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "http://localhost:9/", "javascript:alert(1)", "/\\evil.example"])
def test_signing_in_leads_nowhere_else(elsewhere: str, client: Client, owner: User) -> None:
    assert sign_in(client, owner.email, next=elsewhere).headers["Location"] == "/"


def test_half_a_configuration_of_single_sign_on_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_sso_providers(Env()) == {}
    monkeypatch.setenv("LAB_OIDC_URL", "https://sso.example/")
    with pytest.raises(ImproperlyConfigured, match="LAB_OIDC_CLIENT, LAB_OIDC_SECRET"):
        build_sso_providers(Env())
