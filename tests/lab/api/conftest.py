"""A token of each kind, and a client that sends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from lab.edges.api import limits, tokens, v1
from lab.edges.api.base import SCOPES
from lab.teams.accounts.models import Role, Team, User
from lab.teams.accounts.permissions import TABLE, is_role_allowed
from tests.conftest import make_member


class ApiClient(Client):
    """Asks the API as a program does: with a token and JSON, without cookies."""

    def __init__(self, secret: str) -> None:
        super().__init__(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {secret}"})

    def ask(self, path: str, **query: Any) -> Any:
        return self.get(f"/api/v1/{path}", query)

    def send(self, path: str, body: Any = None, method: str = "post", **headers: str) -> Any:
        data = json.dumps({} if body is None else body)
        return getattr(self, method)(f"/api/v1/{path}", data, content_type="application/json", headers=headers)


assert v1.operations  # each operation names its scope when it is read


def scopes_of(role: str) -> list[str]:
    return [name for name in TABLE if name in SCOPES and is_role_allowed(role, name)]


def client_of(team: Team, user: User, *scopes: str) -> ApiClient:
    """With every scope the person's role has, unless some are named."""
    role = user.memberships.get(team=team).role
    return ApiClient(tokens.create_access_token(team, user, "test", list(scopes) or scopes_of(role), None)[1])


def note_first_use(client: ApiClient) -> ApiClient:
    """Has the lab write down that the token is in use: where a test takes each request back, each would be the first and have an audit entry."""
    assert client.ask("me").status_code == 200
    return client


@pytest.fixture(autouse=True)
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the limit count for themselves."""
    monkeypatch.setattr(limits, "count_token_request", lambda key, limit=None: None)


@pytest.fixture
def api(team: Team, owner: User) -> ApiClient:
    return client_of(team, owner)


@pytest.fixture
def as_role(team: Team) -> Callable[[str], ApiClient]:
    def of(role: str) -> ApiClient:
        return client_of(team, make_member(f"{role}@roles.example.org", team, Role(role)))

    return of
