"""Incidents of queries: filters, orders and patterns that a client names. Named after what happened elsewhere (docs/security.md)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from lab.teams.accounts.models import Team, User
from tests.lab.cast import Cast, make_cast
from tests.lab.query_names import ask_while_read
from tests.security.test_incidents_files import readable

WALKS = [
    "user__password__startswith",
    "run__created_by__password",
    "team__slug",
    "pk__in",
    "_connector",
    "_negated",
    "id",
    "prompt__team_id",
    "run__team",
]
SQL = ["') OR 1=1; SELECT pg_sleep(5) --", "9" * 400, "\0", "__import__('os').system('id')"]
NAMES = (
    "f",
    "sort",
    "q",
    "re",
    "run",
    "after",
    "order",
    "by",
    "kind",
    "state",
    "phase",
    "status",
    "page",
    "step",
    "group",
    "columns",
    "size",
    "field",
    "from",
    "to",
    "action",
    "actor",
)


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "queries")


def ask(client: Client, path: str, query: dict[str, Any]) -> tuple[Any, str]:
    """The answer and the SQL that made it."""
    with CaptureQueriesContext(connection) as asked:
        response = client.get(path, query)
        body = b"".join(response.streaming_content) if response.streaming else response.content
    return (response, body), "\n".join(one["sql"] for one in asked.captured_queries)


@pytest.mark.parametrize("key", WALKS)
def test_label_studio_cve_2023_47117_a_filter_names_a_field_of_the_list(key: str, cast: Cast, as_owner: Client) -> None:
    """Relations cannot be walked to somebody's password, letter by letter; django_cve_2025_64459: nor are keys of a query Django's own arguments."""
    for query in ({"f": f"{key}:eq:a"}, {"f": f"{key}:starts:pbkdf2"}, {"sort": key}, {"sort": f"-{key}"}, {key: "pbkdf2"}):
        (response, body), sql = ask(as_owner, "/rollouts/", query)
        assert response.status_code in (200, 400), query
        assert "password" not in sql.replace('"accounts_user"."password"', "") or '"password" LIKE' not in sql
        assert '."password"::text LIKE' not in sql
        assert b"pbkdf2_sha" not in body


def test_django_cve_2025_64459_keys_of_a_query_are_no_arguments(cast: Cast, owner: User) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    wrong = []
    for route in readable(cast, client):
        response = client.get(route.path(cast), {"_connector": "OR 1=1", "_negated": "1", "team__id__gte": "0", "user__password__startswith": "a"})
        if response.streaming:
            list(response.streaming_content)
        if response.status_code >= 500:
            wrong.append(f"{route.name}: {response.status_code}")
    assert not wrong, "\n".join(wrong)


def test_aim_cve_2024_2195_values_of_a_query_are_values(cast: Cast, owner: User) -> None:
    """Nothing a client writes is evaluated, by Python or by PostgreSQL; nothing of it makes a 500."""
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    wrong, walked = [], 0
    started = time.monotonic()
    for route in readable(cast, client):
        for query, response, body in ask_while_read(client, route.path(cast), [dict.fromkeys(NAMES, value) for value in SQL]):
            walked += 1
            if response.status_code >= 500 or b"uid=" in body:
                wrong.append(f"{route.name} with {query['q']!r}: {response.status_code}")
    assert not wrong, "\n".join(wrong)
    assert walked > 150
    assert time.monotonic() - started < 120


@pytest.mark.parametrize("written", ["%ed%a0%80", "%ff%fe", "%00", "%E2%80%AE", "&&=&", "a=1" + "&b=2" * 1200])
def test_what_is_no_text_is_no_error_of_the_lab(written: str, cast: Cast, as_owner: Client) -> None:
    for path in ("/rollouts/", "/runs/", "/prompts/", "/compare/"):
        response = as_owner.get(f"{path}?q={written}&run={written}&f=reward:eq:{written}")
        assert response.status_code in (200, 302, 400, 404), path


def test_a_pattern_that_explodes_ends_in_time(cast: Cast, as_owner: Client) -> None:
    started = time.monotonic()
    for pattern in ("(a+)+$", "(a|a)*b", "(.*a){20}", "(" * 200):
        assert as_owner.get("/rollouts/", {"re": pattern}).status_code == 200
    assert time.monotonic() - started < 30
