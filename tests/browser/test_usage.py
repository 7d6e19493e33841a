"""A quota in a browser: set, run into, raised, and the run goes on. Nothing is trained; workers claim with the product's own verb."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.supervision.supervisor.sweeper import select_unheld_runs
from lab.teams.accounts.models import Team, User
from lab.training.runs import publisher
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Run
from tests.lab.supervisor.claiming import claim_run

GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "recipe": "grpo"}


def set_runs_at_once(page: Page, limit: str) -> None:
    page.goto("/usage/")
    page.get_by_role("link", name="Set quotas").click()
    page.get_by_label("Concurrent runs").fill(limit)
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".quota-card").first).to_contain_text(f"of {limit}")


@pytest.mark.feature(9)
def test_a_run_over_the_quota_waits_and_goes_on_when_it_is_raised(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    first = launch_run(team, owner, GRPO, "first")
    assert claim_run(first, "a:1/x", "a:1")
    sign_in(owner)
    set_runs_at_once(page, "1")
    expect(page.locator(".quota-card").first).to_contain_text("used up")

    page.goto("/launch/grpo/")
    expect(page.locator(".quota-left")).to_contain_text("1 of 1 used up")
    expect(page.locator("#preflight")).to_contain_text("already has 1 of 1 concurrent runs", timeout=30_000)
    expect(page.locator("#preflight [data-estimate]")).to_contain_text("No similar finished run yet: GRPO", timeout=30_000)
    page.get_by_label("Name", exact=True).fill("second")
    page.locator(".launch-button").click()
    expect(page.locator("#run-head h1")).to_contain_text("second")
    second = Run.across_teams.get(name="second")
    assert not claim_run(second, "b:1/y", "b:1")
    publisher.flush_messages()
    page.reload()
    expect(page.locator("#run-head .banner", has_text="Waiting in the queue")).to_contain_text("already has 1 of 1 concurrent runs")
    page.goto("/runs/")
    why = page.locator(f'tr[data-run="{second.pk}"] [data-cell="why"]')
    expect(why).to_contain_text("already has 1 of 1 concurrent runs")
    expect(page.get_by_text("live", exact=True)).to_be_visible()

    other = page.context.new_page()
    set_runs_at_once(other, "2")
    other.close()
    second.refresh_from_db()
    assert select_unheld_runs([second]) == [second]
    publisher.flush_messages()
    expect(why).not_to_contain_text("already has")
    assert claim_run(second, "b:1/y", "b:1")
    publisher.flush_messages()
    expect(page.locator(f'tr[data-run="{second.pk}"] .chip')).to_have_text("starting")
