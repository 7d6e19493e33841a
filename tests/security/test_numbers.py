"""Numbers that nothing holds, at every parameter and path of every page: refused or passed over, never a mistake of the lab."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import Resolver404, resolve

from lab.teams.accounts.models import Team, User
from lab.teams.accounts.permissions import TABLE
from tests.lab.cast import Cast, make_cast
from tests.lab.query_names import record_names
from tests.security.people import client_of, routes
from tests.security.test_matrix import entry

DIGITS = "9" * 5000
HOSTILE = ("9" * 20, "9" * 19, "٣٣", "²")


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "numbers")


NAME = re.compile(r"[A-Za-z_][\w.-]{0,40}")  # of a parameter; what else is looked up is part of somebody's text


def ask(client: Client, method: str, url: str, data: Any) -> Any:
    with transaction.atomic():
        response = getattr(client, method)(url, data)
        if response.streaming:
            list(response.streaming_content)
        transaction.set_rollback(True)
    return response


def find_names(client: Client, method: str, url: str) -> list[str]:
    """What a page looks for in an address or a form."""
    names: set[str] = set()
    with record_names(names):
        ask(client, method, url, {})
        ask(client, method, url, {"part": "preview", "service": "1", "download": "1"} if method == "get" else {"scope": "all"})
    return sorted(name for name in names if NAME.fullmatch(name) and name != "csrfmiddlewaretoken")


@pytest.mark.parametrize("method", ["get", "post"])
def test_no_parameter_of_a_page_breaks_it(method: str, cast: Cast, team: Team, owner: User, caplog: Any) -> None:
    caplog.set_level(logging.CRITICAL)
    client, wrong, walked = client_of(owner, team), [], 0
    for route in routes():
        if (entry(route).read if method == "get" else entry(route).write) not in TABLE or not route.path(cast):
            continue
        url = f"/t/{team.slug}{route.path(cast)}"
        names = find_names(client, method, url)
        tries = [{name: DIGITS} for name in names] if method == "get" else []
        tries += [dict.fromkeys(names, value) for value in (DIGITS, *HOSTILE) if names]
        for data in tries:
            walked += 1
            response = ask(client, method, url, data)
            if response.status_code >= 500:
                wrong.append(f"{method} {route.name} {sorted(data)}: {response.status_code} for {str(next(iter(data.values())))[:30]}")
    assert not wrong, "\n".join(wrong)
    assert walked > 300


def test_no_number_in_a_path_breaks_a_page(cast: Cast, team: Team, owner: User, caplog: Any) -> None:
    caplog.set_level(logging.CRITICAL)
    client, wrong, walked = client_of(owner, team), [], 0
    for route in routes():
        if not {entry(route).read, entry(route).write} & set(TABLE) or not route.path(cast):
            continue
        for number in re.findall(r"(?<=/)\d+(?=/)", route.path(cast)):
            for value in (DIGITS, *HOSTILE):
                path = route.path(cast).replace(f"/{number}/", f"/{value}/", 1)
                for method in ("get", "post"):
                    walked += 1
                    response = ask(client, method, f"/t/{team.slug}{path}", {})
                    if response.status_code >= 500:
                        wrong.append(f"{method} {route.name}: {response.status_code} for {value[:30]}")
    assert not wrong, "\n".join(wrong)
    assert walked > 100


def test_the_addresses_that_once_broke() -> None:
    with pytest.raises(Resolver404):
        resolve(f"/datasets/{DIGITS}/")
