"""Parts of a page that come anew: several at once, under a pressed button, with the focus and the folds of whoever reads."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from lab.training.workers.models import Worker
from lab.watching.alerts.kinds import FAILED
from lab.watching.alerts.models import Notice
from tests.browser.conftest import of_module, until
from tests.browser.training import add, running
from tests.lab.supervisor.spools import rollout

pytestmark = pytest.mark.usefixtures("signed_in")

CLICK = """(selectors) => {
  for (const one of selectors) document.querySelector(one).dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
}"""
COUNT_CLICK = """(link) => link.addEventListener("click", (event) => { event.preventDefault(); window.clicked = true; })"""
APPLY = f"(status) => {of_module('run/live.js', 'module.liveRun.apply({ ...module.liveRun.state, status })')}"


@pytest.fixture
def signed_in(sign_in: Callable[[User], None], owner: User) -> None:
    sign_in(owner)


@pytest.fixture
def run(team: Team) -> Run:
    run = running(team)
    add(run, [rollout(4, 0, 0, completion="cut short", reward=-1.0, length=90, finish_reason="length")])
    return run


def on_the_rollouts_of(run: Run, page: Page) -> None:
    page.goto(f"/runs/{run.pk}/rollouts/")
    until(page, of_module("run/live.js", "Boolean(module.liveRun.state)"))


def now(run: Run, status: Status) -> None:
    """In the database alone: the page is told by the test, when it suits it."""
    Run.across_teams.filter(pk=run.pk).update(status=status)


def test_two_bins_clicked_at_once_both_hold(page: Page, run: Run) -> None:
    page.goto("/rollouts/?sort=-length")
    page.locator('[data-histogram="reward"] .bin').first.wait_for()
    page.evaluate(CLICK, ['[data-histogram="length"] .bin:last-of-type', '[data-histogram="reward"] .bin:first-of-type'])
    expect(page.locator(".filter-chip")).to_have_count(4)
    expect(page.locator("[data-row]")).to_have_count(1)
    assert {one.split(":")[0] for one in parse_qs(urlsplit(page.url).query)["f"]} == {"length", "reward"}


def test_the_header_and_the_feed_do_not_take_each_others_turn(page: Page, run: Run) -> None:
    on_the_rollouts_of(run, page)
    now(run, Status.STOPPED)
    page.evaluate(APPLY, "stopping")
    page.evaluate(CLICK, ["#feed a[data-feed]"])
    page.evaluate(APPLY, "stopped")
    expect(page.locator("#run-head")).to_have_attribute("data-status", "stopped")
    expect(page.get_by_role("button", name="Zero variance")).to_have_attribute("aria-pressed", "true")
    until(page, "location.search.includes('zero=1')")


def test_everybody_who_asked_waits_for_the_newest_and_a_failure_is_told(page: Page, team: Team, owner: User) -> None:
    page.route_web_socket("**/ws/**", lambda socket: None)  # the live inbox would ask for the same part
    page.goto("/t/reasoning/inbox/")
    Notice.objects.create(team=team, user=owner, kind=FAILED, subject="#7 failed", key="one")
    every = "Promise.all(addresses.map((one) => module.showPart('inbox-list', one, { select: '#inbox-list' })))"
    asked = f"(addresses) => {of_module('base/parts.js', every)}"
    assert page.evaluate(asked, ["?page=1", "?kind=", "?show=unread"]) == ["?show=unread"] * 3
    expect(page.locator("[data-notice]")).to_have_count(1)
    assert page.evaluate(asked, ["/t/reasoning/nowhere/"]) == [None]
    expect(page.locator(".toast.error")).to_contain_text("404")
    assert page.evaluate(asked, ["?page=1"]) == ["?page=1"]


def test_a_pressed_button_stays_until_it_is_let_go(page: Page, run: Run) -> None:
    on_the_rollouts_of(run, page)
    lineage = page.locator("#run-head").get_by_role("link", name="Lineage")
    lineage.evaluate(COUNT_CLICK)
    lineage.hover()
    page.mouse.down()
    now(run, Status.STOPPED)
    page.evaluate(APPLY, "stopped")
    until(page, of_module("base/parts.js", "module.findPendingAddress('run-head') !== null"))
    page.mouse.up()
    assert page.evaluate("window.clicked") is True
    expect(page.locator("#run-head")).to_have_attribute("data-status", "stopped")
    expect(lineage).to_be_focused()  # the one that came in its place


@pytest.mark.own_context  # for its clock
def test_what_is_unfolded_stays_so_while_its_part_is_polled(page: Page, team: Team) -> None:
    Worker.objects.create(name="w", host="h", pid=1, queues=["gpu"])
    page.clock.install()
    page.goto("/t/reasoning/workers/")
    page.get_by_text("Start another worker").click()
    expect(page.locator("#start-another")).to_be_visible()
    Worker.objects.create(name="second", host="h", pid=2, queues=["gpu"])
    page.clock.fast_forward(6000)
    expect(page.get_by_text("second", exact=True)).to_be_visible()
    expect(page.locator("#start-another")).to_be_visible()


def test_a_menu_stays_open_while_the_header_comes_anew(page: Page, run: Run) -> None:
    on_the_rollouts_of(run, page)
    page.locator("#run-head").get_by_label("More actions").click()
    alert = page.get_by_role("link", name="Alert me when it ends")
    expect(alert).to_be_visible()
    now(run, Status.STOPPING)
    page.evaluate(APPLY, "stopping")
    expect(page.locator("#run-head")).to_have_attribute("data-status", "stopping")
    expect(alert).to_be_visible()
    page.keyboard.press("Escape")
    expect(alert).to_be_hidden()
