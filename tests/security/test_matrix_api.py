"""Every operation of the API × tokens of everybody, compared with the permission table. A new operation is covered by being there."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from lab.edges.api import limits, tokens, v1
from lab.edges.api.base import AccessToken, api
from lab.teams.accounts.models import ApiToken, Membership, Team, User
from lab.teams.accounts.permissions import TABLE, is_role_allowed
from tests.lab.cast import OBJECTS, PLAIN, Cast, make_cast
from tests.security.people import MEMBERS, make_people

PARAMETER = re.compile(r"\{(?:(\w+):)?(\w+)\}")
LEADS = ("researcher", "admin", "owner")
FINER = {
    "DELETE /comments/{int:comment_id}": ("owner",),  # who wrote the cast's comment: nobody deletes another's words
    "GET /queues/{int:queue_id}/conflicts": LEADS,  # … and the queue's reviewers
    "GET /queues/{int:queue_id}/review": LEADS,
    "GET /items/{int:item_id}": LEADS,
    "DELETE /items/{int:item_id}/decision": LEADS,
}
GENERAL = {"int": 1, "uuid": uuid.UUID(int=0), "uuidstr": uuid.UUID(int=0)}


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    permission: str | None  # empty: any usable token; None: no token is asked for

    def url(self, cast: Cast) -> str:
        def value(found: re.Match[str]) -> str:
            kind, name = found[1] or "", found[2]
            if name in OBJECTS:
                return str(cast.value("", name))
            return str(PLAIN.get(name, GENERAL.get(kind, uuid.UUID(int=0))))

        return f"/api/v1{PARAMETER.sub(value, self.path)}"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations() -> Iterator[Operation]:
    assert v1.operations
    for prefix, router in api._routers:
        for path, view in router.path_operations.items():
            for one in view.operations:
                asked = [auth.permission for auth in one.auth_callbacks if isinstance(auth, AccessToken)]
                for method in one.methods:
                    yield Operation(method, f"{prefix}{path}", asked[0] if asked else None)


def test_every_operation_asks_for_a_token_and_a_line_of_the_table() -> None:
    open_to_all = [str(one) for one in operations() if one.permission is None]
    assert open_to_all == [], "Give each operation auth=needs('…') with a line of the permission table, or auth=any_token."
    assert {one.permission for one in operations()} - {""} <= set(TABLE)
    assert len(list(operations())) > 10


@pytest.fixture(autouse=True)
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "count_token_request", lambda key, limit=None: None)


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "operations")


@pytest.fixture
def people(team: Team, owner: User, cast: Cast) -> dict[str, User | None]:
    return make_people(team, owner)


def secret_of(team: Team, user: User, role: str) -> str:
    """Of a token that has been used: of the requests that are taken back none is its first, which the audit log has an entry for."""
    secret = tokens.create_access_token(team, user, "matrix", [one for one in TABLE if is_role_allowed(role, one)], None)[1]
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    return secret


def ask(one: Operation, url: str, secret: str | None, client: Client | None = None) -> Any:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    with transaction.atomic():
        body: Any = {"data": "{}", "content_type": "application/json"} if one.method in ("POST", "PUT", "PATCH") else {}
        response = getattr(client or Client(raise_request_exception=False), one.method.lower())(url, headers=headers, **body)
        if response.streaming:
            list(response.streaming_content)
        transaction.set_rollback(True)
    return response


def test_every_operation_serves_the_roles_the_table_names_and_no_other(people: dict[str, User | None], cast: Cast, team: Team) -> None:
    wrong = []
    for role in MEMBERS:
        user = people[role]
        assert user is not None
        secret = secret_of(team, user, role)
        for one in operations():
            status = ask(one, one.url(cast), secret).status_code
            meant = (not one.permission or is_role_allowed(role, one.permission)) and role in FINER.get(str(one), MEMBERS)
            if (status in (401, 403)) == meant or status >= 500:
                wrong.append(f"{one} ({one.permission}): {role} got {status}")
    assert not wrong, "\n".join(wrong)


def test_a_scope_that_the_token_has_not_is_refused_whatever_the_role(people: dict[str, User | None], cast: Cast, team: Team, owner: User) -> None:
    _, secret = tokens.create_access_token(team, owner, "none", [], None)
    wrong = [f"{one}: {status}" for one in operations() if one.permission and (status := ask(one, one.url(cast), secret).status_code) != 403]
    assert not wrong, "\n".join(wrong)


def test_another_teams_objects_are_not_found(people: dict[str, User | None], cast: Cast) -> None:
    stranger = people["stranger"]
    assert stranger is not None
    secret = secret_of(stranger.memberships.get().team, stranger, "owner")
    wrong = []
    for one in operations():
        if not any(found[1] in OBJECTS for found in re.findall(PARAMETER, one.path)):
            continue
        response = ask(one, one.url(cast), secret)
        if response.status_code not in (404, 422) or "operations" in response.content.decode().replace(one.url(cast), ""):
            wrong.append(f"{one}: {response.status_code}")
    assert not wrong, "\n".join(wrong)


def test_no_token_a_cookie_a_dead_token_and_a_dead_member_are_all_nobody(people: dict[str, User | None], cast: Cast, team: Team, owner: User) -> None:
    browser = Client(raise_request_exception=False)
    browser.force_login(owner)
    revoked, revoked_secret = tokens.create_access_token(team, owner, "revoked", [], None)
    tokens.revoke_access_token(revoked, owner)
    admin = people["admin"]
    assert admin is not None
    orphan = secret_of(team, admin, "admin")
    Membership.objects.filter(user=admin).update(active=False)
    expired, expired_secret = tokens.create_access_token(team, owner, "expired", [], None)
    ApiToken.across_teams.filter(pk=expired.pk).update(expires_at="2020-01-01T00:00:00Z")
    wrong = []
    for one in operations():
        url = one.url(cast)
        for who, secret, client in (
            ("anonymous", None, None),
            ("a cookie", None, browser),
            ("a revoked token", revoked_secret, None),
            ("a deactivated member", orphan, None),
            ("an expired token", expired_secret, None),
            ("a wrong token", f"{orphan[:-1]}x", None),
        ):
            status = ask(one, url, secret, client).status_code
            if status != 401:
                wrong.append(f"{one}: {who} got {status}")
    assert not wrong, "\n".join(wrong)
