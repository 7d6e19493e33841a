"""What docs/api.md shows works as it stands there, and the page of the API names every operation."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from lab.edges.api import openapi, tokens
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.lab.api.conftest import scopes_of

PAGE = (Path(__file__).resolve().parents[3] / "docs/api.md").read_text()
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def environment(live_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    team = Team.objects.create(name="Docs", slug="docs")
    user = User.objects.create_user("docs@example.org", "correct horse battery")
    team.memberships.create(user=user, role="researcher")
    monkeypatch.setenv("LAB_URL", live_server.url)
    monkeypatch.setenv("LAB_TOKEN", tokens.create_access_token(team, user, "docs", scopes_of("researcher"), None)[1])


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_examples_run(environment: None) -> None:
    [python] = [text for kind, text in BLOCKS if kind == "python"]
    exec(compile(python, "docs/api.md", "exec"), {})
    assert [(run.name, run.status) for run in Run.across_teams.all()] == [("sweep", Status.STOPPED)]
    if shutil.which("curl"):
        commands = next(text for kind, text in BLOCKS if "curl" in text)
        answers = subprocess.run(["bash", "-ec", commands], capture_output=True, text=True, timeout=240, check=True).stdout
        assert "problem" not in answers
        assert '"nightly"' in answers


@pytest.mark.feature(80)
def test_the_page_of_the_api_names_every_operation(as_owner: Client) -> None:
    index = as_owner.get("/t/reasoning/api/").content.decode()
    names = {one.view_func.__name__ for _, one in openapi.iterate_operations()}
    assert {name for name in names if f'id="{name}"' not in index} == set()  # the anchors of the time when all stood on one page
    tags = re.findall(r'<h2><a href="/t/reasoning/api/\?tag=([\w-]+)"', index)
    described: list[str] = []
    for tag in tags:
        page = as_owner.get(f"/t/reasoning/api/?tag={tag}").content.decode()
        assert len(page) < 200_000, tag
        described += re.findall(r'<section class="card stack-tight operation" id="(\w+)"', page)
        assert "`" not in re.sub(r"<(pre|code).*?</\1>", "", page, flags=re.DOTALL).partition('class="api-body')[2].partition("<table")[0]
        ids = re.findall(r' id="([^"]+)"', page)
        assert len(ids) == len(set(ids))
    assert sorted(described) == sorted(names)


def test_anybody_may_read_what_the_api_can_do(client: Client, db: None) -> None:
    assert client.get("/api/v1/openapi.json").json()["openapi"].startswith("3.")
