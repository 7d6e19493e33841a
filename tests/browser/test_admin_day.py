"""A new admin's day, in three browsers: people come, a second factor is required, a quota is set and run into, a token in use is revoked, a
member with an open page is deactivated, and the audit log tells all of it."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import requests
from django.conf import settings
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.training.runs import publisher
from lab.training.runs.models import Run
from tests.browser.conftest import WebProcess
from tests.lab.accounts.signing_in import PASSWORD, code_of
from tests.lab.supervisor.claiming import claim_run

SECRET = "a long enough secret"


@pytest.fixture
def open_browser(browser: Browser, web: WebProcess) -> Iterator[Callable[[], Page]]:
    made = []

    def another() -> Page:
        context = browser.new_context(base_url=web.url, viewport={"width": 1440, "height": 900})
        context.set_default_timeout(30_000)
        made.append(context)
        return context.new_page()

    yield another
    for context in made:
        context.close()


def invite(page: Page, email: str, role: str) -> str:
    """The path of the link, which is shown once."""
    page.goto("/t/reasoning/team/")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Role", exact=True).select_option(role)
    page.get_by_role("button", name="Invite").click()
    return page.locator("#invitation-link").inner_text().removeprefix(settings.LAB_URL)


def join(page: Page, link: str, name: str) -> None:
    page.goto(link)
    page.get_by_label("Your name").fill(name)
    page.get_by_label("Password").fill(SECRET)
    page.get_by_role("button", name="Create account and join").click()
    page.wait_for_url("**/t/reasoning/**")


def set_up_second_factor(page: Page, password: str) -> None:
    page.goto("/accounts/2fa/totp/activate/")
    if page.get_by_role("button", name="Confirm").is_visible():
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Confirm").click()
    page.get_by_label("Authenticator code").fill(code_of(page.locator("[data-secret]").inner_text()))
    page.get_by_role("button", name="Activate").click()
    expect(page.get_by_role("list", name="Unused codes")).to_be_visible()


def launch(page: Page, name: str) -> Run:
    page.goto("/t/reasoning/launch/grpo/")
    page.get_by_label("Name", exact=True).fill(name)
    page.locator(".launch-button").click()
    expect(page.locator("#run-head h1")).to_contain_text(name)
    return Run.across_teams.get(name=name)


def make_token(page: Page) -> str:
    page.goto("/t/reasoning/tokens/")
    page.keyboard.press("n")
    page.get_by_role("textbox", name="Name").fill("notebook")
    page.get_by_role("button", name="Launching and reading").click()
    page.get_by_role("button", name="Create token").click()
    return page.locator("#new-secret").inner_text()


def test_a_new_admins_day(page: Page, open_browser: Callable[[], Page], web: WebProcess, team: Team, owner: User) -> None:
    annotator, researcher = open_browser(), open_browser()
    page.goto("/accounts/login/")
    page.get_by_label("E-mail address").fill(owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()

    # People come, each by a link of their own.
    join(annotator, invite(page, "ada@example.org", "annotator"), "Ada Annotator")
    expect(annotator.get_by_role("heading", name="Label", exact=True)).to_be_visible()
    expect(annotator.get_by_role("navigation", name="Main").get_by_role("link")).to_have_text([re.compile("^Inbox"), "Label"])
    join(researcher, invite(page, "rita@example.org", "researcher"), "Rita Researcher")
    expect(researcher.get_by_role("link", name="Launch", exact=True)).to_be_visible()

    # The team asks for a second factor; who has none is led to setting one up, the admin first.
    page.goto("/t/reasoning/team/settings/")
    page.get_by_label(re.compile("second factor")).check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text(re.compile("Set up .*second factor.* first|second factor of your own"))).to_be_visible()
    set_up_second_factor(page, PASSWORD)
    page.goto("/t/reasoning/team/settings/")
    page.get_by_label(re.compile("second factor")).check()
    page.get_by_role("button", name="Save").click()
    researcher.goto("/t/reasoning/runs/")
    expect(researcher.get_by_text("requires a second factor")).to_be_visible()
    set_up_second_factor(researcher, SECRET)
    researcher.goto("/t/reasoning/runs/")
    expect(researcher.get_by_role("heading", name="No runs yet")).to_be_visible()
    annotator.goto("/t/reasoning/label/")
    expect(annotator.get_by_text("requires a second factor")).to_be_visible()

    # A quota of one run at once; the second waits and says why.
    page.goto("/t/reasoning/usage/")
    page.get_by_role("link", name="Set quotas").click()
    page.get_by_label("Concurrent runs").fill("1")
    page.get_by_role("button", name="Save").click()
    first, second = launch(researcher, "first"), launch(researcher, "second")
    assert claim_run(first, "gpu:1/x", "gpu:1")
    assert not claim_run(second, "gpu:2/y", "gpu:2")
    publisher.flush_messages()
    researcher.goto(f"/t/reasoning/runs/{second.pk}/")
    expect(researcher.locator("#run-head .banner", has_text="Waiting in the queue")).to_contain_text("already has 1 of 1 concurrent runs")

    # A token in use is revoked by the admin.
    headers = {"Authorization": f"Bearer {make_token(researcher)}"}
    assert [run["name"] for run in requests.get(f"{web.url}/api/v1/runs", headers=headers, timeout=60).json()["items"]] == ["second", "first"]
    page.goto("/t/reasoning/tokens/")
    page.get_by_role("row", name=re.compile("notebook")).get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("notebook was revoked")).to_be_visible()
    assert requests.get(f"{web.url}/api/v1/runs", headers=headers, timeout=60).status_code == 401

    # A member with an open page is deactivated: the page closes at once, the queued run stops, the running one is named and goes on.
    researcher.goto(f"/t/reasoning/runs/{first.pk}/")
    expect(researcher.locator("#live-badge")).to_have_attribute("data-state", "live")
    page.goto("/t/reasoning/team/")
    page.get_by_role("link", name="Manage Rita Researcher").click()
    page.get_by_role("button", name="Deactivate Rita Researcher").click()
    page.get_by_role("dialog").get_by_role("button", name="Deactivate").click()
    expect(page.get_by_role("button", name="Reactivate")).to_be_visible()
    expect(researcher.get_by_role("alert")).to_contain_text("You are signed out", timeout=4_000)
    second.refresh_from_db()
    first.refresh_from_db()
    assert (second.status, first.status) == ("stopped", "starting")

    # The audit log has all of it, and can be asked.
    page.goto("/t/reasoning/audit/")
    for words in (
        "invited",
        "joined",
        "changed the team's settings",
        "changed a quota",
        "launched",
        "created a token",
        "revoked a token",
        "deactivated",
    ):
        expect(page.locator("tbody").get_by_text(words, exact=True).first).to_be_visible()
    page.goto("/t/reasoning/audit/?did=token.use")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("rita@example.org")
    log = Entry.objects.filter(team=team, at__gt=timezone.now() - timedelta(minutes=10))
    counted = {
        action: log.filter(action=action).count() for action in ("member.invite", "member.join", "run.launch", "token.revoke", "member.deactivate")
    }
    assert counted == {"member.invite": 2, "member.join": 2, "run.launch": 2, "token.revoke": 1, "member.deactivate": 1}
