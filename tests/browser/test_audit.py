"""The audit log and /admin/ in a browser, each as the person it is for."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run, Status
from tests.hostile import MARK, RUN
from tests.lab.accounts.signing_in import give_app


@pytest.mark.feature(79)
def test_an_admin_finds_out_who_stopped_a_run(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    [run] = launch_recipe(team, owner, "grpo", name=f"<img src=x onerror={RUN}>")
    run.request_stop()
    sign_in(owner)
    page.goto(f"/runs/{run.pk}/")
    page.locator("#run-head").get_by_role("link", name="Audit log").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Action", exact=True).select_option("run.stop")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/t/reasoning/audit/\?did=run\.stop&kind=run&object="))
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_label("Action", exact=True)).to_have_value("run.stop")
    page.locator("tbody summary").click()
    expect(page.locator(".audit-details pre")).to_contain_text('"was": "queued"')
    page.get_by_role("link", name="This entry only").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Entry {Entry.across_teams.get(action='run.stop').pk}")
    page.get_by_role("link", name="Open the run").click()
    expect(page).to_have_url(re.compile(f"/runs/{run.pk}/"))
    assert not page.evaluate(f"'{MARK}' in window")


def test_an_operator_stops_runs_of_any_team_and_is_asked_first(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    for number in range(2):
        launch_recipe(team, owner, "grpo", name=f"run {number}")
    operator = User.objects.create_superuser("operator@example.org", "correct horse battery")
    give_app(operator)
    sign_in(operator)
    page.goto("/admin/")
    expect(page.get_by_role("heading", name="Waiting runs")).to_be_visible()
    page.locator("a[href='/admin/runs/run/']").first.click()
    page.locator("tbody input[type=checkbox]").nth(0).check()
    page.locator("select[name=action]").select_option("stop_runs")
    page.get_by_role("button", name="Run", exact=False).last.click()
    expect(page.get_by_text("Each finishes its step, saves a checkpoint")).to_be_visible()
    assert not Run.across_teams.exclude(status=Status.QUEUED).exists()
    page.get_by_role("button", name="Stop and save these runs").click()
    expect(page.get_by_text("Stop and save these runs: done for 1.")).to_be_visible()
    assert Entry.across_teams.get(action="run.stop").who == "operator@example.org"
