"""The rollouts tab in a browser: steps, following, token colours, the hover card, and hostile completions."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.conftest import until
from tests.browser.training import add
from tests.lab.supervisor.spools import make_run, rollout, started, steps
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message, Turn

CORPUS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\u202egnp.exe\u202c and \u2066isolated\u2069",
    "zero\u200bwidth\u200d\ufeff",
    "nul\x00byte",
    "\x1b[31mred\x1b[0m",
    "x" * 200_000,
    "</div></article><svg onload=alert(3)>",
    "{{ 7*7 }}{% load x %}",
]


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    sign_in(owner)
    run = make_run(team, status=Status.RUNNING)
    add(run, [started(special_tokens={4: "<|end|>"}), *steps(1, 6, answers="7890")])
    return run


def visit(page: Page, run: Run, query: str = "") -> None:
    page.goto(f"/runs/{run.pk}/rollouts/{query}")
    expect(page.locator("#live-badge")).to_have_text("live")


def step(page: Page) -> str | None:
    return page.locator("#feed").get_attribute("data-step")


@pytest.mark.feature(16)
def test_the_feed_follows_the_newest_step(page: Page, run: Run) -> None:
    visit(page, run)
    assert step(page) == "6"
    add(run, steps(7, 7))
    expect(page.locator("#feed")).to_have_attribute("data-step", "7")
    assert "step=" not in page.url


@pytest.mark.feature(16)
def test_somebody_who_reads_an_older_step_gets_a_pill_and_no_movement(page: Page, run: Run) -> None:
    visit(page, run, "?step=3")
    add(run, steps(7, 7))
    pill = page.locator("#feed-pill")
    expect(pill).to_have_text("8 new")
    add(run, steps(8, 8))
    expect(pill).to_have_text("16 new")
    box = pill.bounding_box()
    assert box is not None
    assert box["height"] >= 24  # its words fit, and a finger
    assert step(page) == "3"
    pill.click()
    expect(page.locator("#feed")).to_have_attribute("data-step", "8")
    expect(pill).to_be_hidden()


def test_somebody_who_scrolled_down_is_not_moved(page: Page, run: Run) -> None:
    add(run, [rollout(7, group, sample) for group in range(8) for sample in range(8)])
    visit(page, run)
    page.evaluate("window.scrollTo(0, 900)")
    add(run, steps(8, 8))
    expect(page.locator("#feed-pill")).to_have_text("8 new")
    page.wait_for_timeout(1500)
    assert step(page) == "7"


@pytest.mark.feature(35)
def test_keys_and_the_number_box_and_the_slider_go_through_the_steps(page: Page, run: Run) -> None:
    visit(page, run)
    page.keyboard.press("[")
    expect(page.locator("#feed")).to_have_attribute("data-step", "5")
    page.keyboard.press("[")
    expect(page.locator("#feed")).to_have_attribute("data-step", "4")
    page.keyboard.press("]")
    expect(page.locator("#feed")).to_have_attribute("data-step", "5")
    assert page.evaluate("location.search") == "?phase=train&step=5"
    page.locator("#step-number").fill("2")
    page.locator("#step-number").press("Enter")
    expect(page.locator("#feed")).to_have_attribute("data-step", "2")
    page.locator("#step-slider").fill("3")
    expect(page.locator("#feed")).to_have_attribute("data-step", "3")
    page.reload()
    assert step(page) == "3"


@pytest.mark.feature(40)
def test_tokens_are_coloured_over_the_whole_feed_and_the_choice_is_in_the_address(page: Page, run: Run) -> None:
    visit(page, run)
    page.get_by_role("link", name="Entropy", exact=True).click()
    expect(page.locator("[data-units]:visible")).to_have_count(8)
    assert "tokens=entropy" in page.url
    expect(page.locator("#token-legend")).to_contain_text("98th percentile")
    levels = [one.get_attribute("class") for one in page.locator("[data-units]").first.locator(".unit:not(.special)").all()]
    assert levels == ["unit level-5", "unit level-2", "unit level-9", "unit level-0", "unit"]  # 0.5, 0.25, 1 and 0 nats; text without a token
    text = page.locator("[data-units]").first.inner_text()
    page.get_by_role("link", name="Off", exact=True).click()
    expect(page.locator("[data-units]:visible")).to_have_count(0)
    expect(page.locator("[data-plain]").first).to_have_text(re.compile("^" + re.escape(text.split("⟨")[0])))


def test_the_card_of_a_token_says_what_was_measured(page: Page, run: Run) -> None:
    visit(page, run, "?tokens=logprob")
    unit = page.locator("[data-unit]").nth(1)
    unit.hover()
    card = page.locator("#token-card")
    expect(card).to_be_visible()
    for text in ("id2", "-0.250 nats", "77.9 %", "0.250 nats", "yes"):
        assert text in card.inner_text().replace("\n", "").replace("\t", ""), card.inner_text()
    page.locator("[data-units]").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-unit].active")).to_have_attribute("data-unit", "1")
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()


def test_the_card_stays_when_its_token_had_to_be_scrolled_to(page: Page, run: Run) -> None:
    page.set_viewport_size({"width": 1440, "height": 400})
    visit(page, run, "?tokens=entropy")
    units = page.locator("[data-units]:visible")
    expect(units).to_have_count(8)
    units.last.focus()
    page.keyboard.press("End")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")  # the scroll has been told
    assert page.evaluate("scrollY") > 0
    expect(page.locator("#token-card")).to_be_visible()


@pytest.mark.feature(34, 44)
def test_special_tokens_and_white_space_show_on_demand(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    run = make_run(team, status=Status.RUNNING)
    arrays = {
        "ids": pack_ids([7, 8, 4]),
        "lengths": pack_array([2, 3, 0], "B"),
        "logprobs": pack_array([-1.0] * 3, "e"),
        "entropies": pack_array([0.5] * 3, "e"),
    }
    add(run, [started(special_tokens={4: "<|end|>"}), rollout(1, completion="a b\n🦊", turns=[Turn("assistant", 0, 3)], **arrays)])
    visit(page, run, "?tokens=entropy")
    units = page.locator("[data-unit]")
    expect(units.nth(2)).to_be_hidden()
    page.get_by_label("White space and special tokens").check()
    expect(units.nth(2)).to_have_text("<|end|>")
    assert units.nth(0).inner_text() == "a·"
    assert units.nth(1).text_content() == "b↵\n🦊"


def test_more_loads_the_rest_of_a_large_step(page: Page, run: Run) -> None:
    add(run, [rollout(7, group, sample) for group in range(20) for sample in range(8)])
    visit(page, run, "?tokens=entropy")
    expect(page.locator("[data-rollout]")).to_have_count(64)
    page.get_by_role("link", name="More of step 7").click()
    expect(page.locator("[data-rollout]")).to_have_count(128)
    page.get_by_role("link", name="More of step 7").click()
    expect(page.locator("[data-rollout]")).to_have_count(160)
    expect(page.locator("[data-units]:not([hidden])")).to_have_count(160)  # also on cards whose answer is shown by another's
    keys = [one.get_attribute("data-rollout") for one in page.locator("[data-rollout]").all()]
    assert len(set(keys)) == 160


@pytest.mark.parametrize("view", ["", "?tokens=entropy"])
def test_hostile_completions_are_text_in_every_view(view: str, page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    """The page fixture fails on any dialog or script error."""
    sign_in(owner)
    run = make_run(team, status=Status.RUNNING)
    events = [
        rollout(
            1,
            0,
            sample,
            completion=text,
            reference=text[:500],
            prompt=[Message("user", text[:5000])],
            rewards={text[:50]: 1.0},
            ids=pack_ids([5] * min(len(text), 3000)),
            lengths=pack_array([1] * min(len(text), 3000), "B"),
            logprobs=b"",
            entropies=b"",
        )
        for sample, text in enumerate(CORPUS)
    ]
    add(run, [started(special_tokens={6: "<b>bold</b>"}), *events])
    visit(page, run, view)
    expect(page.locator("[data-rollout]")).to_have_count(len(CORPUS))
    if view:
        expect(page.locator("[data-units]:visible")).to_have_count(len(CORPUS))
        page.locator("[data-unit]").first.hover()
    assert page.locator("#feed img, #feed script, #feed svg[onload], #feed b").count() == 0
    body = page.locator("#feed").text_content() or ""
    for text in ("<script>alert(1)</script>", "<img src=x onerror=alert(2)>", "⟨U+202E⟩", "⟨U+200B⟩", "nul␀byte", "{{ 7*7 }}{% load x %}"):
        assert text in body
    assert "\u202e" not in body
    assert "\u200b" not in body


def test_a_200k_completion_opens_whole_on_request_without_blocking_the_page(page: Page, run: Run) -> None:
    add(run, [rollout(9, 0, sample, completion="word " * 40_000) for sample in range(8)])
    visit(page, run)
    assert len(page.content()) < 300_000
    expect(page.locator("[data-plain]").first).to_have_attribute("tabindex", "0")  # it scrolls, by the keyboard too
    page.get_by_role("button", name="Show all 200000 characters").first.click()
    until(page, "document.querySelector('[data-plain]').textContent.length >= 200000")


def test_steps_and_phases_work_without_scripts(without_scripts: Page, run: Run) -> None:
    page = without_scripts
    page.goto(f"/runs/{run.pk}/rollouts/")
    page.get_by_role("button", name="Previous step").click()
    assert step(page) == "5"
    page.get_by_role("link", name="Held-out").click()
    expect(page.get_by_role("heading", name="No rollouts here yet")).to_be_visible()


def test_a_list_is_read_by_keyboard_with_the_chosen_rollout_beside_it(page: Page, run: Run) -> None:
    add(run, [rollout(7, 0, sample, completion=text) for sample, text in enumerate(("a walrus", "<b>a seal</b>", "a walrus"))])
    visit(page, run, "?step=7")
    page.get_by_role("link", name="List", exact=True).click()
    lines, pane = page.locator("[data-line]:visible"), page.locator("#reading-pane")
    expect(lines).to_have_count(2)  # the third says what the first does
    expect(pane).to_contain_text("a walrus")
    assert page.evaluate("location.search") == "?phase=train&step=7&layout=list"
    page.keyboard.press("j")
    expect(lines.nth(1)).to_be_focused()
    expect(pane).to_contain_text("<b>a seal</b>")
    page.set_viewport_size({"width": 1000, "height": 700})
    expect(pane).to_be_hidden()
    where = lines.nth(0).get_attribute("href")
    lines.nth(0).click()
    page.wait_for_url(f"**{where}")
    page.goto(f"/runs/{run.pk}/rollouts/?step=7")  # the choice is remembered
    expect(page.get_by_role("link", name="List", exact=True)).to_have_attribute("aria-current", "true")
