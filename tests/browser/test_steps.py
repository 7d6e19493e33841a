"""From a chart to the text: the pinned step, the panel beside the charts, the slider all tabs share, and the feed by keyboard."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.browser.conftest import until
from tests.browser.training import add, click_chart, open_overview, running
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import measured, rollout, steps
from trainers.contract.events import Message


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    """Rollouts at steps 1 to 20, held-out ones at 0 and 10, and metrics up to step 24."""
    sign_in(owner)
    run = running(team)
    held = [event for step in (0, 10) for event in (rollout(step, phase="heldout"), measured(step, values={"heldout/reward": 0.1 * step}))]
    add(run, [*steps(4, 20, answers="7890"), *held, *(measured(step) for step in range(21, 25))])
    return run


def search(page: Page) -> str:
    return str(page.evaluate("location.search"))


def test_a_single_step_has_no_slider_from_it_to_itself(page: Page, run: Run) -> None:
    """A supervised run that was measured before training had a slider of “0 of 0”."""
    supervised = running(run.team, trainer="sft")
    Rollout.objects.filter(run=supervised).delete()
    add(supervised, [rollout(0, phase="heldout"), measured(0, values={"heldout/reward": 0.1})])
    for part in ("", "rollouts/"):
        page.goto(f"/runs/{supervised.pk}/{part}")
        expect(page.locator("#step-only")).to_have_text("step 0, the only one so far")
        expect(page.locator("#stepper")).to_be_hidden()
    add(supervised, [rollout(20, phase="heldout"), measured(20, values={"heldout/reward": 0.2})])
    expect(page.locator("#step-last")).to_have_text("20")
    expect(page.locator("#stepper")).to_be_visible()


@pytest.mark.feature(28)
def test_a_click_on_a_chart_opens_the_rollouts_of_that_step(page: Page, run: Run) -> None:
    open_overview(page, run)
    click_chart(page, "reward", 0.5)
    panel = page.locator("#step-panel")
    expect(panel.locator("[data-rollout]")).to_have_count(8)
    step = page.locator("#step-feed").get_attribute("data-step")
    assert step is not None
    assert 10 <= int(step) <= 14
    expect(panel.get_by_role("heading", name=f"Step {step}")).to_be_focused()
    expect(page.locator("#step-number")).to_have_value(step)
    assert search(page) == f"?step={step}&panel=rollouts"
    for name in ("reward", "loss", "heldout"):
        page.locator(f"[data-panel={name}]").scroll_into_view_if_needed()
        expect(page.locator(f"[data-panel={name}] .chart-pin")).to_be_visible()
    assert f"rollouts/?run={run.number}&f=step:eq:{step}" in (panel.get_by_role("link", name="Open in the table").get_attribute("href") or "")
    page.keyboard.press("[")
    expect(page.locator("#step-feed")).to_have_attribute("data-step", str(int(step) - 1))
    page.reload()
    expect(page.locator("#step-feed")).to_have_attribute("data-step", str(int(step) - 1))
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    assert search(page) == f"?step={int(step) - 1}"


def test_a_held_out_chart_leads_to_held_out_rollouts(page: Page, run: Run) -> None:
    open_overview(page, run)
    click_chart(page, "heldout", 0.45)
    expect(page.locator("#step-feed")).to_have_attribute("data-phase", "heldout")
    expect(page.locator("#step-feed")).to_have_attribute("data-step", "10")
    expect(page.locator("#step-phases [aria-current]")).to_have_text("Held-out")
    click_chart(page, "loss", 0.2)
    expect(page.locator("#step-feed")).to_have_attribute("data-phase", "train")


def test_the_chart_stays_where_it_was_when_the_panel_takes_its_room(page: Page, run: Run) -> None:
    open_overview(page, run)
    chart = page.locator("[data-panel=loss]")
    chart.scroll_into_view_if_needed()
    page.evaluate("window.scrollBy(0, 40)")
    top = "document.querySelector('[data-panel=loss]').getBoundingClientRect().top"
    before = page.evaluate(top)
    click_chart(page, "loss", 0.5)
    expect(page.locator("#step-feed")).to_be_visible()
    assert page.evaluate(top) == pytest.approx(before, abs=2)


def test_a_step_without_rollouts_gives_the_nearest_with_a_note(page: Page, run: Run) -> None:
    open_overview(page, run)
    click_chart(page, "reward", 0.97)
    expect(page.locator("#step-panel")).to_contain_text("has no rollouts here. These are of step 20, the nearest before it.")


@pytest.mark.feature(28)
def test_arrow_keys_on_a_chart_move_the_pin_and_enter_opens(page: Page, run: Run) -> None:
    open_overview(page, run)
    area = page.locator("[data-panel=reward] .chart-area")
    area.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-panel=reward] .legend-value").first).to_have_text("2.20")  # reward is a tenth of the step: 24, 23, 22
    expect(page.locator("#step-panel")).to_be_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#step-feed")).to_have_attribute("data-step", "2")
    page.keyboard.press("Escape")
    expect(area).to_be_focused()


def test_a_step_goes_with_the_tabs(page: Page, run: Run) -> None:
    open_overview(page, run)
    page.locator("#step-slider").fill("7")
    until(page, "location.search === '?step=7'")
    page.get_by_role("link", name="Rollouts", exact=False).and_(page.locator(".tabs a")).first.click()
    expect(page.locator("#feed")).to_have_attribute("data-step", "7")
    page.keyboard.press("]")
    expect(page.locator("#feed")).to_have_attribute("data-step", "8")
    page.locator(".tabs").get_by_role("link", name="Atlas").click()
    expect(page.locator("#step-number")).to_have_value("8")
    page.locator(".tabs").get_by_role("link", name="Logs").click()
    page.locator(".tabs").get_by_role("link", name="Overview").click()
    expect(page.locator("#step-number")).to_have_value("8")
    expect(page.locator(".chart-pin:not([hidden])").first).to_be_visible()
    page.locator("#step-follow").click()
    expect(page.locator("#step-number")).to_have_value("20")
    assert "step" not in search(page)


def test_the_slider_grows_while_the_run_trains(page: Page, run: Run) -> None:
    open_overview(page, run)
    expect(page.locator("#step-last")).to_have_text("20")
    add(run, steps(25, 26))
    expect(page.locator("#step-last")).to_have_text("26")
    expect(page.locator("#step-ticks .measured")).to_have_count(1)  # step 10; step 0 lies before the first training rollout


def test_a_panel_that_follows_the_newest_step_goes_on_with_the_run(page: Page, run: Run) -> None:
    page.goto(f"/runs/{run.pk}/?panel=rollouts")
    expect(page.locator("#step-feed")).to_have_attribute("data-step", "20")
    add(run, steps(25, 25))
    expect(page.locator("#step-feed")).to_have_attribute("data-step", "25")
    page.locator("#step-panel").hover()
    add(run, steps(26, 26))
    expect(page.locator("#step-last")).to_have_text("26")
    expect(page.locator("#step-feed")).to_have_attribute("data-step", "25")


def test_the_feed_is_read_by_keyboard(page: Page, run: Run) -> None:
    page.goto(f"/runs/{run.pk}/rollouts/?step=5")
    expect(page.locator("#live-badge")).to_have_text("live")
    cards = page.locator("#groups [data-rollout]")
    page.keyboard.press("j")
    expect(cards.nth(0)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("n")
    expect(cards.nth(2)).to_be_focused()
    page.keyboard.press("p")
    page.keyboard.press("p")
    page.keyboard.press("p")
    expect(cards.nth(3)).to_be_focused()  # round the group of four
    page.keyboard.press("k")
    expect(cards.nth(2)).to_be_focused()
    page.keyboard.press("o")
    expect(page.locator("[data-units]:visible")).to_have_count(8)
    assert "tokens=entropy" in search(page)
    cards.nth(2).focus()
    key = cards.nth(2).get_attribute("data-rollout")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/rollouts/{key}/?tokens=entropy*")


def test_finding_in_a_step_hides_what_does_not_say_it(page: Page, run: Run) -> None:
    add(run, [rollout(27, 0, 0, completion="a walrus"), rollout(27, 0, 1), rollout(27, 1, 0, prompt=[Message("user", "Which WALRUS?")])])
    page.goto(f"/runs/{run.pk}/rollouts/?step=27")
    expect(page.locator("#live-badge")).to_have_text("live")
    page.keyboard.press("f")
    expect(page.locator("#feed-find")).to_be_focused()
    page.keyboard.type("walrus")
    expect(page.locator("#groups [data-rollout]:visible")).to_have_count(2)
    expect(page.locator("#feed-found")).to_have_text("2 of 3")
    page.reload()
    expect(page.locator("#groups [data-rollout]:visible")).to_have_count(2)


@pytest.mark.feature(48)
def test_groups_without_variance_and_what_was_filtered_out(page: Page, run: Run) -> None:
    add(run, [rollout(27, 0, 0), rollout(27, 0, 1, reward=0.0, filtered="too long"), rollout(27, 1, 0), rollout(27, 1, 1)])
    page.goto(f"/runs/{run.pk}/rollouts/?step=27")
    expect(page.locator("#live-badge")).to_have_text("live")
    page.get_by_role("button", name="Zero variance").click()
    expect(page.locator("#groups [data-group]")).to_have_count(1)
    assert "zero=1" in search(page)
    page.get_by_role("button", name="Zero variance").click()
    expect(page.locator("#groups [data-group]")).to_have_count(2)
    page.get_by_role("button", name="Filtered out").click()
    expect(page.locator("#groups [data-rollout]")).to_have_count(1)
    expect(page.locator("#groups")).to_contain_text("filtered: too long")
    page.keyboard.press("[")
    expect(page.get_by_role("heading", name="No results in step 20")).to_be_visible()
    page.get_by_role("link", name="Show all rollouts of the step").click()
    expect(page.locator("#groups [data-rollout]")).to_have_count(8)


def test_hostile_text_in_the_panel_is_text(page: Page, run: Run) -> None:
    texts = [stored(text) for text in PAYLOADS if MARK in text]
    made = [
        rollout(27, group, 0, completion=text, reference=text, prompt=[Message("user", text)], rewards={text[:60]: 1.0}, filtered=text)
        for group, text in enumerate(texts)
    ]
    add(run, made)
    page.goto(f"/runs/{run.pk}/?step=27&panel=rollouts")
    expect(page.locator("#step-panel [data-rollout]")).to_have_count(len(texts))
    assert page.evaluate(f"window.{MARK}") is None
    assert page.locator("#step-panel :is(img, script, iframe, svg[onload], b, [onclick], [onerror])").count() == 0
    shown = page.locator("#step-panel").text_content() or ""
    for text in texts:
        assert text[:40] in shown


@pytest.mark.feature(35)
def test_every_step_of_a_run_with_too_many_to_list_is_reached(page: Page, run: Run) -> None:
    """More than WALK steps: the server says which are beside the chosen one, and keys that are faster than it do not get lost."""
    add(run, [rollout(step) for step in range(30, 4050, 2)])
    page.goto(f"/runs/{run.pk}/?step=1001")
    number = page.locator("#step-number")
    expect(number).to_have_value("1000")
    page.keyboard.press("]")
    expect(number).to_have_value("1002")
    page.keyboard.press("]")
    page.keyboard.press("]")
    page.keyboard.press("[")
    expect(number).to_have_value("1004")
    page.locator("#step-slider").fill("2001")
    expect(number).to_have_value("2000")
    page.goto(f"/runs/{run.pk}/atlas/?step=1001")
    page.keyboard.press("]")
    expect(number).to_have_value("1002")
