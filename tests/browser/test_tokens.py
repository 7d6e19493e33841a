"""An access token from the form to its end, used against the real web process meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import requests
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import User
from lab.training.runs.launch import launch_recipe
from tests.browser.conftest import WebProcess
from tests.lab.cast import make_cast

SECRET = re.compile(r"lab_\w{8}_\w{40}")


@pytest.mark.feature(78)
def test_a_token_is_made_used_and_revoked(page: Page, web: WebProcess, owner: User, sign_in: Callable[[User], None]) -> None:
    team = owner.memberships.get().team
    make_cast(team, owner, "mark")
    launch_recipe(team, owner, "grpo", name="waiting")
    sign_in(owner)
    page.context.grant_permissions(["clipboard-write"])
    page.goto("/t/reasoning/tokens/")
    page.keyboard.press("n")
    page.get_by_role("textbox", name="Name").fill("notebook")
    page.get_by_role("button", name="Launching and reading").click()
    expect(page.get_by_role("textbox", name="Name")).to_have_value("notebook")
    page.get_by_role("checkbox", name="rollouts.export").check()
    page.get_by_role("button", name="Create token").click()
    shown = page.locator("#new-secret")
    expect(shown).to_have_text(SECRET)
    secret = shown.inner_text()
    page.locator("[data-copy-from=new-secret]").click()
    expect(page.get_by_text("Copied", exact=True)).to_be_visible()
    page.reload()
    expect(page.locator("#new-secret")).to_have_count(0)

    lab = requests.Session()
    lab.headers["Authorization"] = f"Bearer {secret}"
    runs = lab.get(f"{web.url}/api/v1/runs", timeout=60)
    assert [run["name"] for run in runs.json()["items"]] == ["waiting", "run mark"]
    assert int(runs.headers["RateLimit-Remaining"]) > 0
    lines = lab.get(f"{web.url}/api/v1/rollouts/export", timeout=60, stream=True)
    assert len(list(lines.iter_lines())) == 2
    stopped = lab.post(f"{web.url}/api/v1/runs/{runs.json()['items'][0]['id']}/stop", timeout=60)
    assert stopped.json()["status"] == "stopped"
    nothing = lab.get(f"{web.url}/api/v1/nowhere", timeout=60)
    assert (nothing.status_code, nothing.headers["Content-Type"]) == (404, "application/problem+json")
    huge = lab.post(f"{web.url}/api/v1/runs", data="x" * 3_000_000, headers={"Content-Type": "application/json"}, timeout=60)
    assert huge.status_code == 413

    page.reload()
    row = page.get_by_role("row", name=re.compile("notebook"))
    expect(row.get_by_text("127.0.0.1")).to_be_visible()
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("notebook was revoked")).to_be_visible()
    assert lab.get(f"{web.url}/api/v1/me", timeout=60).status_code == 401
