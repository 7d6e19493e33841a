"""Incidents of text: what people and models write, in errors, pages and exports. What a browser makes of it: tests/browser/test_hostile.py."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from lab.rollouts.browse import exports
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.lab.cast import Cast, make_cast
from tests.security.people import routes

SCRIPT = "<script>window.hostileRan=1</script>"
FORMULAS = ["=1+1|cmd '/c calc'!A0", "+1+1", "-1+1", "@SUM(1+1)", "\t=1+1", "\r=1+1"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", [f"/{SCRIPT}/", f"/runs/?q={SCRIPT}", f"/accounts/login/?next={SCRIPT}", f"/t/{SCRIPT}/runs/", f"/methods/{SCRIPT}/"]
)
def test_mlflow_cve_2023_6568_an_error_page_escapes_what_was_asked(path: str, as_owner: Client) -> None:
    for client in (as_owner, Client()):
        response = client.get(path, headers={"User-Agent": SCRIPT, "Referer": SCRIPT, "Accept": SCRIPT, "X-Request-Id": SCRIPT, "HX-Target": SCRIPT})
        assert SCRIPT.encode() not in response.content
        assert SCRIPT not in str(response.headers)


@pytest.mark.django_db
def test_a_refusal_escapes_the_teams_name(client: Client) -> None:
    team = Team.objects.create(name=SCRIPT, slug="hostile")
    client.force_login(make_member("ann@example.org", team, Role.ANNOTATOR))
    response = client.get("/t/hostile/runs/")
    assert response.status_code == 403
    assert SCRIPT.encode() not in response.content
    said = client.post("/t/hostile/launch/preflight/", "{}", content_type="application/json")
    assert said.status_code == 403
    assert said["Content-Type"] == "application/json"


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, SCRIPT)


def test_mlflow_cve_2024_27132_what_is_no_page_is_not_taken_for_one(cast: Cast, as_owner: Client) -> None:
    """Every answer that holds the text as it is says that it is not HTML; every page holds it escaped."""
    wrong, held = [], 0
    for route in routes():
        path = route.path(cast)
        if not path or route.name.startswith(("admin:", "api-")) or "logout" in route.name:
            continue
        response: Any = as_owner.get(path)
        body = b"".join(response.streaming_content) if response.streaming else response.content
        kind = response.headers.get("Content-Type", "")
        if SCRIPT.encode() not in body:
            continue
        held += 1
        if kind.startswith(("text/html", "image/svg", "application/xhtml", "text/xml", "application/xml")) or not kind:
            wrong.append(f"{route.name}: {kind}")
    assert not wrong, "\n".join(wrong)
    assert held > 3


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_table_for_spreadsheets_holds_no_formula(formula: str) -> None:
    assert not str(exports.format_csv_cell(formula)).startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.django_db
def test_json_in_a_page_cannot_end_its_script(as_owner: Client, team: Team, owner: User) -> None:
    make_cast(team, owner, "</script><script>alert(1)</script>")
    page = as_owner.get("/compare/?run=1").content.decode()
    assert "</script><script>alert(1)" not in page
    assert "\\u003C/script\\u003E\\u003Cscript\\u003Ealert(1)" in page, "the name is in the page's data"
