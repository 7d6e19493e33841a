"""The page of access tokens: made with a form, shown once, revoked; admins see everybody's."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client

from lab.edges.api import tokens
from lab.teams.accounts.models import ApiToken, Role, Team, User
from lab.teams.audit.models import Entry
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient

AT = "/t/reasoning/tokens/"


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def made(client: Client, **data: Any) -> str:
    response = client.post(f"{AT}new/", {"name": "notebook", "days": "30", "scopes": ["runs.read"], **data}, follow=True)
    found = re.search(r"lab_\w{8}_\w{40}", response.content.decode())
    assert found, response.content.decode()[:2000]
    return found[0]


def test_a_token_is_made_shown_once_used_and_revoked(as_owner: Client, owner: User) -> None:
    secret = made(as_owner)
    assert secret not in as_owner.get(AT).content.decode()
    assert ApiClient(secret).ask("me").json()["may"] == ["runs.read"]
    token = ApiToken.across_teams.get()
    assert token.expires_at is not None
    as_owner.post(f"{AT}{token.pk}/revoke/")
    assert ApiClient(secret).ask("me").status_code == 401
    assert "Revoked and expired" in as_owner.get(AT).content.decode()
    acts = list(Entry.across_teams.filter(kind="apitoken", action__in=("token.create", "token.revoke")).order_by("pk").values_list("action", "actor"))
    assert acts == [("token.create", owner.pk), ("token.revoke", owner.pk)]
    assert secret[-40:] not in str(list(Entry.across_teams.values()))


def test_what_is_missing_stands_at_its_field_and_nothing_is_lost(as_owner: Client) -> None:
    response = as_owner.post(f"{AT}new/", {"name": "kept words", "days": "5"})
    page = response.content.decode()
    assert (response.status_code, ApiToken.across_teams.count()) == (422, 0)
    assert "Select at least one scope" in page
    assert 'value="kept words"' in page


def test_scopes_and_expiry_are_those_of_the_role(team: Team) -> None:
    annotator = signed_in(make_member("annotator@example.org", team, Role.ANNOTATOR))
    page = annotator.get(f"{AT}new/").content.decode()
    assert 'value="label.work"' in page
    assert 'value="runs.read"' not in page
    assert 'value="never"' not in page
    for data in ({"scopes": ["runs.read"]}, {"scopes": ["label.see"], "days": "never"}):
        assert annotator.post(f"{AT}new/", {"name": "x", "days": "7", **data}).status_code == 422
    assert annotator.get(f"{AT}new/?service=1").status_code == 404
    assert annotator.post(f"{AT}new/", {"name": "x", "days": "7", "scopes": ["label.see"], "service": "1"}).status_code == 404


def test_admins_make_service_tokens_within_the_role_they_choose(as_owner: Client) -> None:
    beyond = as_owner.post(f"{AT}new/", {"name": "bot", "days": "7", "scopes": ["runs.launch"], "service": "1", "role": "viewer"})
    assert (beyond.status_code, "The role viewer does not allow runs.launch" in beyond.content.decode()) == (422, True)
    assert as_owner.post(f"{AT}new/", {"name": "bot", "days": "7", "scopes": ["runs.read"], "service": "1", "role": "owner"}).status_code == 422
    secret = made(as_owner, service="1", role="viewer", days="never")
    assert ApiClient(secret).ask("me").json()["role"] == "viewer"
    assert "Team service tokens" in as_owner.get(AT).content.decode()


def test_only_admins_see_and_revoke_what_is_not_theirs(as_owner: Client, team: Team, teammate: User, stranger: User) -> None:
    token, secret = tokens.create_access_token(team, teammate, "of a teammate", ["runs.read"], None)
    other = make_member("other@example.org", team)
    assert "of a teammate" not in signed_in(other).get(AT).content.decode()
    assert signed_in(other).post(f"{AT}{token.pk}/revoke/").status_code == 404
    assert signed_in(stranger).post(f"/t/elsewhere/tokens/{token.pk}/revoke/").status_code == 404
    assert ApiClient(secret).ask("me").status_code == 200
    assert "of a teammate" in as_owner.get(AT).content.decode()
    assert as_owner.post(f"{AT}{token.pk}/revoke/").status_code == 302
    assert ApiClient(secret).ask("me").status_code == 401
