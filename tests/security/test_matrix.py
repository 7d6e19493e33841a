"""Every address × everybody, compared with the permission table. A new address is covered by being there."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from lab.teams.accounts.models import Team, User
from lab.teams.accounts.permissions import ACCOUNT, BEARER, PUBLIC, STAFF, TABLE, RouteAccess, find_route_access, is_role_allowed
from tests.lab.cast import Cast, make_cast
from tests.security.people import MEMBERS, PEOPLE, Route, client_of, make_people, routes, sockets

METHODS = {"GET": "read", "POST": "write"}
LEADS = frozenset({"researcher", "admin", "owner"})
# Where the line of the table is not enough, because the object asks for more: who gets through to the cast's object, and why the others do not.
FINER: dict[str, tuple[frozenset[str], str]] = {
    "view-update": (frozenset({"owner"}), "a view is changed by who saved it"),
    "view-rename": (frozenset({"owner"}), "a view is changed by who saved it"),
    "view-delete": (frozenset({"owner"}), "a view is changed by who saved it"),
    "queue-review": (LEADS, "leads, and the queue's reviewers"),
    "queue-conflicts": (LEADS, "leads, and the queue's reviewers"),
    "queue-review-accept": (LEADS, "leads, and the queue's reviewers"),
    "queue-review-return": (LEADS, "leads, and the queue's reviewers"),
    "judgement-review": (LEADS, "leads, and the queue's reviewers"),
    "label-adjudicate": (LEADS, "leads, and the queue's reviewers"),
    **{name: (frozenset({"owner"}), "a notice is its person's") for name in ("inbox-open", "inbox-read")},
    **{name: (frozenset({"owner"}), "a rule is its person's") for name in ("alert", "alert-switch", "alert-delete")},
    "worker-drain": (frozenset(), "workers serve the stranger's team too: operators decide"),
    "token-revoke": (frozenset({"admin", "owner"}), "whose token it is, and admins"),
}

NOTHING_THERE = {"compare-prompts": "the cast has one run, and two are compared"}  # behind the gate, nothing is found


def given(route: Route, cast: Cast) -> dict[str, Any]:
    """What an address needs to be told before it finds anything."""
    wanted = {
        "launch-preflight": {"recipe": "grpo"},
        "launch-compose": {"recipe": "grpo", "act": "0:base"},
        "ablation-new": {"from_run": str(cast.run.pk)},
        "grid-new": {"from_run": str(cast.run.pk)},
        "run-queue-change": {"act": "queue", "queue": "gpu", "run": str(cast.run.number)},
        "runs-act": {"act": "tag", "tag": "t", "run": str(cast.run.number)},
        "project-move": {"kind": "run", "id": str(cast.run.number), "to": "none"},
    }
    return wanted.get(route.name, {})


def to_sign_in(response: Any) -> bool:
    return response.status_code == 302 and response["Location"].split("?")[0].endswith("/accounts/login/")


def to_operators_sign_in(response: Any) -> bool:
    """Which is a redirect to the lab's own."""
    return response.status_code == 302 and response["Location"].split("?")[0] == reverse("admin:login")


def entry(route: Route) -> RouteAccess:
    found = find_route_access(route.name)
    assert found is not None, route.name
    return found


def test_every_address_has_an_entry_in_the_permission_table() -> None:
    missing = sorted(
        route.name for route in [*routes(), *(Route(str(one.name), (), None) for one in sockets())] if find_route_access(route.name) is None
    )
    assert missing == [], (
        "These addresses have no entry, so that nobody reaches them. Say in ROUTES of lab/teams/accounts/permissions.py "
        "which permission each asks for (see() for pages that are read, do() for posts, both() for both), "
        "or name their beginning in PREFIXES when they come with a package."
    )


def test_every_entry_asks_for_something_there_is() -> None:
    known = {*TABLE, PUBLIC, ACCOUNT, STAFF, BEARER, ""}
    assert {route.name: entry(route) for route in routes() if not {entry(route).read, entry(route).write} <= known} == {}


def asks(permission: str) -> list[Route]:
    """Addresses of which reading or writing asks for a line of the table."""
    return [route for route in routes() if {entry(route).read, entry(route).write} & {permission}]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "django.request")  # a thousand refusals, each logged


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "matrix")


@pytest.fixture
def clients(team: Team, owner: User, cast: Cast) -> dict[str, Client]:
    return {who: client_of(user, team if who in MEMBERS else None) for who, user in make_people(team, owner).items()}


def ask(client: Client, method: str, url: str, data: dict[str, Any] | None = None) -> Any:
    """What was done is taken back."""
    with transaction.atomic():
        response = getattr(client, method.lower())(url, data or {})
        if response.streaming:
            list(response.streaming_content)
        transaction.set_rollback(True)
    return response


def problem(who: str, route: str, asked: str, response: Any) -> str:
    """What is wrong with the answer somebody got; nothing when the table says so."""
    status = response.status_code
    if who == "anonymous":
        return "" if to_sign_in(response) else "anonymous must be sent to the sign-in"
    if who in ("stranger", "deactivated"):
        return "" if status == 404 else f"{who} must find nothing (404)"
    if not is_role_allowed(who, asked):
        return "" if status == 403 else f"{who} must be refused (403)"
    if route in FINER and who not in FINER[route][0]:
        return "" if status in (403, 404) else f"{who} must be refused: {FINER[route][1]}"
    if route in NOTHING_THERE:
        return "" if status == 404 else f"{who} must find nothing: {NOTHING_THERE[route]}"
    if status in (401, 403, 404) or status >= 500 or to_sign_in(response):
        return f"{who} must get through"
    return ""


@pytest.mark.feature(76)
@pytest.mark.parametrize("method", METHODS)
def test_every_address_lets_through_whom_the_table_names_and_nobody_else(method: str, clients: dict[str, Client], cast: Cast, team: Team) -> None:
    wrong, walked = [], 0
    for route in routes():
        asked = getattr(entry(route), METHODS[method])
        if asked not in TABLE:
            continue
        path = route.path(cast)
        assert path, f"{route.name}: tests/lab/cast.py has no value for {route.parameters}"
        for who in PEOPLE:
            response = ask(clients[who], method, f"/t/{team.slug}{path}", given(route, cast))
            walked += 1
            if said := problem(who, route.name, asked, response):
                wrong.append(f"{method} {route.name} ({asked}): {said}, got {response.status_code}")
    assert not wrong, "\n".join(wrong)
    assert walked > 50 * len(PEOPLE)


def test_a_method_an_address_does_not_know_is_refused_to_all(clients: dict[str, Client], cast: Cast, team: Team) -> None:
    wrong = []
    for route in routes():
        found = entry(route)
        for method, side in METHODS.items():
            if getattr(found, side) or not {found.read, found.write} & set(TABLE):
                continue
            for who in ("viewer", "owner"):
                response = ask(clients[who], method, f"/t/{team.slug}{route.path(cast)}")
                if response.status_code not in (403, 405):
                    wrong.append(f"{who}: {method} {route.name} got {response.status_code}")
    assert not wrong, "\n".join(wrong)


def test_a_team_that_asks_for_a_second_factor_shows_nothing_to_who_has_none(clients: dict[str, Client], cast: Cast, team: Team) -> None:
    Team.objects.filter(pk=team.pk).update(requires_mfa=True)
    shown = []
    for route in routes():
        for method, side in METHODS.items():
            if getattr(entry(route), side) not in TABLE:
                continue
            response = ask(clients["owner"], method, f"/t/{team.slug}{route.path(cast)}", given(route, cast))
            if response.status_code != 403:
                shown.append(f"{method} {route.name}: {response.status_code}")
    assert not shown, "\n".join(shown)


def test_without_a_team_in_the_address_nobody_outside_reaches_an_object_of_it(clients: dict[str, Client], cast: Cast) -> None:
    """The stranger's own team is taken then, and the deactivated member has none."""
    wrong = []
    for route in routes():
        if not route.parameters or not {entry(route).read, entry(route).write} & set(TABLE) or not owned(route):
            continue
        for who in ("stranger", "deactivated"):
            for method in METHODS:
                response = ask(clients[who], method, route.path(cast))
                if response.status_code not in (403, 404, 405):
                    wrong.append(f"{who}: {method} {route.name} got {response.status_code}")
    assert not wrong, "\n".join(wrong)


def owned(route: Route) -> bool:
    return any(one == "key" or one.endswith("_id") for one in route.parameters)


def test_pages_of_an_account_are_for_whoever_is_signed_in(clients: dict[str, Client], cast: Cast) -> None:
    wrong = []
    for route in routes():
        path = route.path(cast)
        if entry(route).read != ACCOUNT or not path:
            continue
        for who in PEOPLE:
            response = ask(clients[who], "GET", path)
            if to_sign_in(response) != (who == "anonymous"):
                wrong.append(f"{who}: {route.name} got {response.status_code}")
    assert not wrong, "\n".join(wrong)


def test_the_operators_pages_are_not_there_for_anybody_else(clients: dict[str, Client], cast: Cast, owner: User) -> None:
    wrong = []
    for route in routes():
        path = route.path(cast)
        if entry(route).read != STAFF or not path:
            continue
        for who in ("anonymous", "annotator", "owner", "stranger"):
            for method in METHODS:
                response = ask(clients[who], method, path)
                if who == "anonymous" and (to_sign_in(response) or to_operators_sign_in(response)):
                    continue
                if response.status_code != 404:
                    wrong.append(f"{who}: {method} {route.name} got {response.status_code}")
    assert not wrong, "\n".join(wrong)
