"""The bell counts up while a page is open, names what happened, and goes down when it is read."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.watching.alerts.kinds import FAILED
from lab.watching.alerts.models import AlertMark, Notice
from lab.watching.alerts.notices import notify_members
from tests.browser.training import running

HOSTILE = '<img src=x onerror=alert(1)> "#7" failed'


@pytest.mark.feature(81)
def test_the_bell_counts_up_live_and_down_when_read(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    run = running(team)
    bell = page.locator("[data-unread]")
    page.goto("/t/reasoning/inbox/")
    expect(page.get_by_role("heading", name="No notifications")).to_be_visible()
    expect(bell).to_be_hidden()
    for number, subject in enumerate(("#6 has stalled", HOSTILE)):
        notify_members(team, FAILED, subject, url=f"/t/reasoning/runs/{run.pk}/", users=[owner], key=f"k{number}")
        expect(bell).to_have_text(str(number + 1))
    expect(page.locator(".toast").filter(has_text=HOSTILE)).to_be_visible()
    expect(page.locator("[data-notice]")).to_have_count(2)  # the list came by itself
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{page.url.split('/t/')[0]}/t/reasoning/runs/{run.pk}/")
    expect(bell).to_have_text("1")
    assert Notice.across_teams.get(subject=HOSTILE).read_at is not None
    page.goto("/t/reasoning/inbox/?show=unread")
    page.get_by_role("button", name="Mark all read").click()
    expect(bell).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(bell).to_have_text("1")


def test_a_chart_leads_to_an_alert_about_its_metric(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    run = running(team)
    page.goto(f"/t/reasoning/runs/{run.pk}/")
    AlertMark.objects.create(run=run, key="told", step=2, label=HOSTILE)
    page.reload()
    expect(page.locator("#marks-key .alert")).to_have_text(f"alert: {HOSTILE} at step 2")
    expect(page.locator("[data-panel=reward] .annotation-text")).to_have_text("▲")
    page.locator("[data-panel=reward]").hover()
    page.locator("[data-panel=reward]").get_by_role("link", name="Notify me when").click()
    expect(page.get_by_label("Metric", exact=True)).to_have_value("reward")
    expect(page.get_by_label("Stays within")).to_be_hidden()
    page.get_by_label("Threshold").fill("0.25")
    expect(page.locator("#rule-preview")).to_contain_text("Would have fired 1 time")
    page.get_by_role("button", name="Create alert").click()
    expect(page.get_by_role("row").filter(has_text="reward above 0.25")).to_contain_text(f"run #{run.number}")
