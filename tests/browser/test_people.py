"""People come and go: an invitation is taken up in another browser, the role changes, and deactivation closes an open page at once."""

import re
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings as django_settings
from playwright.sync_api import Browser, Page, WebSocket, expect

from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.audit.models import Entry
from lab.teams.people import departures
from lab.training.runs.models import Status
from tests.browser.conftest import WebProcess
from tests.lab.supervisor.spools import make_run

SignIn = Callable[[User], None]


@pytest.fixture
def visitor(browser: Browser, web: WebProcess) -> Iterator[Page]:
    made = browser.new_context(base_url=web.url, viewport={"width": 390, "height": 800})
    made.set_default_timeout(30_000)
    yield made.new_page()
    made.close()


@pytest.mark.feature(76)
def test_invited_promoted_and_deactivated_with_a_page_open(page: Page, visitor: Page, owner: User, team: Team, sign_in: SignIn) -> None:
    run = make_run(team, status=Status.RUNNING, name="the open page")
    sign_in(owner)
    page.goto("/team/")
    expect(page).to_have_url(re.compile(r"/t/reasoning/team/$"))
    page.get_by_label("E-mail address").fill("ada@example.org")
    page.get_by_label("Role", exact=True).select_option("annotator")
    page.get_by_role("button", name="Invite").click()
    link = page.locator("#invitation-link").inner_text().removeprefix(django_settings.LAB_URL)

    visitor.goto(link)
    expect(visitor.get_by_label("E-mail address")).to_have_value("ada@example.org")
    visitor.get_by_label("Your name").fill("Ada Byron")
    visitor.get_by_label("Password").fill("a long enough secret")
    visitor.get_by_role("button", name="Create account and join").click()
    expect(visitor.get_by_role("heading", name="Label", exact=True)).to_be_visible()  # all an annotator sees
    visitor.goto("/t/reasoning/team/role/")
    assert visitor.evaluate("document.documentElement.scrollWidth <= innerWidth")

    page.get_by_role("link", name="Back to the team").click()
    page.get_by_role("link", name="Manage Ada Byron").click()
    page.get_by_label("researcher:").check()
    page.get_by_role("button", name="Change role").click()
    expect(page.get_by_text("Ada Byron is researcher now.")).to_be_visible()

    sockets: list[WebSocket] = []
    visitor.on("websocket", lambda socket: sockets.append(socket) if "/ws/runs/" in socket.url else None)
    visitor.goto(f"/t/reasoning/runs/{run.pk}/")
    expect(visitor.locator("#live-badge")).to_have_attribute("data-state", "live")
    with sockets[0].expect_event("close", timeout=4_000):  # sooner than the poll would have
        page.get_by_role("button", name="Deactivate Ada Byron").click()
        dialog = page.get_by_role("dialog", name="Deactivate Ada Byron?")
        expect(dialog).to_contain_text("in every browser they have open")
        dialog.get_by_role("button", name="Deactivate").click()
    expect(page.get_by_role("button", name="Reactivate")).to_be_visible()
    expect(visitor.get_by_role("alert")).to_contain_text("You are signed out")  # it was their only team
    expect(visitor.get_by_text("no longer open to you")).to_have_count(0)
    visitor.goto(f"/t/reasoning/runs/{run.pk}/")
    expect(visitor).to_have_url(re.compile("/accounts/login/"))
    log = list(Entry.objects.filter(team=team).order_by("pk").values_list("action", flat=True))
    assert [action for action in log if action.startswith("member.")] == ["member.invite", "member.join", "member.role", "member.deactivate"]


def test_teams_are_switched_by_keyboard(page: Page, owner: User, team: Team, sign_in: SignIn) -> None:
    other = Team.objects.create(name="Alignment", slug="alignment")
    Membership.objects.create(team=other, user=owner, role=Role.VIEWER)
    sign_in(owner)
    page.goto("/t/reasoning/runs/")
    page.locator(".rail-foot details[data-menu] summary").focus()
    page.keyboard.press("Enter")
    current = page.get_by_role("group", name="Your teams").locator("[aria-current]")
    expect(current).to_contain_text("Reasoning")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/t/alignment/runs/")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto("/t/alignment/nothing/")
    page.get_by_role("link", name="Look in Reasoning").click()
    expect(page).to_have_url(re.compile(r"/t/reasoning/nothing/$"))


def test_an_open_page_of_a_team_one_is_taken_out_of_is_emptied(page: Page, owner: User, team: Team, sign_in: SignIn) -> None:
    other = Team.objects.create(name="Alignment", slug="alignment")
    member = Membership.objects.create(team=other, user=owner, role=Role.VIEWER)
    make_run(other, name="their secret run")
    sign_in(owner)
    page.goto("/t/alignment/runs/")
    expect(page.get_by_text("their secret run")).to_be_visible()
    expect(page.locator("[data-live-badge]")).to_have_attribute("data-state", "live")
    departures.deactivate_member(member, None, operator=True)
    expect(page.get_by_role("heading", name="This team is no longer open to you")).to_be_visible()
    expect(page.get_by_text("their secret run")).to_have_count(0)
    page.get_by_role("link", name="Your teams").click()
    expect(page.get_by_role("row", name=re.compile("Reasoning"))).to_be_visible()
    expect(page.get_by_text("Alignment")).to_have_count(0)
