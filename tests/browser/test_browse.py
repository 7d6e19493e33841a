"""The browser over rollouts in a browser: filters and the way back, histograms, rows by keyboard, views, and hostile texts."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

from lab.rollouts.annotations.models import RolloutTag
from lab.rollouts.browse.models import SavedView
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.training import add
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started, steps
from trainers.contract.events import AnyEvent, Message


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    sign_in(owner)
    run = make_run(team, name="arithmetic")
    add(run, [started(), *steps(1, 3, groups=1, samples=2), rollout(4, 0, 0, completion="cut short", reward=-1.0, length=90, finish_reason="length")])
    return run


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def rows(page: Page, count: int) -> None:
    expect(page.locator("[data-row]")).to_have_count(count)


@pytest.mark.feature(51, 90)
def test_filters_stand_in_the_address_and_back_takes_them_away_again(page: Page, run: Run) -> None:
    page.goto("/rollouts/")
    rows(page, 7)
    page.keyboard.press("+")
    page.locator("#add-field").select_option("finish")
    assert page.locator("#add-operator option").all_text_contents() == ["is", "is not"]
    page.locator("#add-value").select_option("length")
    page.get_by_role("button", name="Add", exact=True).click()
    rows(page, 1)
    assert asked(page) == {"f": ["finish:is:length"]}
    page.locator("#browse-pattern").fill("cut (short|long)")
    page.locator("#browse-pattern").press("Enter")
    expect(page.locator(".filter-chip")).to_have_count(2)
    assert asked(page) == {"f": ["finish:is:length"], "re": ["cut (short|long)"]}
    page.go_back()
    expect(page.locator(".filter-chip")).to_have_count(1)
    expect(page.locator("#browse-pattern")).to_have_value("")
    page.go_back()
    rows(page, 7)
    page.go_forward()
    rows(page, 1)
    page.reload()
    rows(page, 1)
    page.get_by_role("link", name="Finish reason is").first.click()
    rows(page, 7)


def test_a_value_that_cannot_be_used_is_explained_where_it_was_typed(page: Page, run: Run) -> None:
    page.goto("/rollouts/?f=step:le:3")
    page.keyboard.press("+")
    page.locator("#add-field").select_option("reward")
    page.locator("#add-value").fill("much")
    page.locator("#add-value").press("Enter")
    expect(page.locator("#error-adding")).to_contain_text("'much' is not a number")
    expect(page.locator("#add-value")).to_have_value("much")
    rows(page, 6)  # the other filter still holds


def test_a_value_can_be_typed_while_the_histograms_arrive(page: Page, run: Run) -> None:
    waiting: list[Route] = []
    page.route(lambda url: "/histograms/" in url, lambda route: waiting.append(route))
    page.goto("/rollouts/")
    page.keyboard.press("+")
    expect(page.locator("#add-field")).to_be_focused()
    page.locator("#add-field").select_option("reward")
    page.locator("#add-value").press_sequentially("0.")
    assert len(waiting) == 1
    waiting.pop().continue_()
    expect(page.locator("[data-histogram]").first).to_be_visible()
    page.keyboard.type("5")
    expect(page.locator("#add-value")).to_have_value("0.5")
    page.keyboard.press("Enter")
    expect(page.locator(".filter-chip")).to_have_count(1)
    expect(page.locator(".filter-chip")).to_contain_text("0.5")


def test_a_bin_a_stretch_and_the_keyboard_choose_in_a_histogram(page: Page, run: Run) -> None:
    page.goto("/rollouts/?sort=-length")
    length = page.locator('[data-histogram="length"]')
    length.locator(".bin").first.wait_for()
    box = length.locator("svg").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 20)
    rows(page, 1)
    assert asked(page)["sort"] == ["-length"]
    assert asked(page)["f"][1] == "length:le:90"
    length.get_by_text("Clear").click()
    rows(page, 7)
    reward = page.locator('[data-histogram="reward"]')
    box = reward.locator("svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=3)
    page.mouse.up()
    rows(page, 1)
    assert asked(page)["f"][0] == "reward:ge:-1"
    reward.get_by_text("Clear").click()
    rows(page, 7)
    reward.locator(".bin").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").endswith("0 rollouts")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    rows(page, 1)


def test_rows_by_keyboard_looked_into_ticked_tagged_and_opened(page: Page, run: Run) -> None:
    page.goto("/rollouts/?run=1&sort=reward")
    page.keyboard.press("j")
    expect(page.locator("[data-row]").first).to_have_attribute("aria-current", "true")
    page.keyboard.press(" ")
    expect(page.locator("#preview")).to_contain_text("cut short")
    page.keyboard.press("j")
    expect(page.locator("#preview")).to_contain_text("<answer>7</answer>")
    page.keyboard.press("Escape")
    expect(page.locator("#preview")).to_be_hidden()
    page.keyboard.press("x")
    page.keyboard.press("k")
    page.keyboard.press("x")
    two = [row.get_attribute("data-row") for row in page.locator("[data-row]").all()[:2]]
    expect(page.locator("[data-compare]")).to_have_attribute("href", f"/t/reasoning/compare/rollouts/?a={two[0]}&b={two[1]}")
    export = page.locator("[data-export]").first
    expect(export).to_have_attribute("href", f"/t/reasoning/rollouts/export/jsonl/?run=1&sort=reward&id={two[0]}&id={two[1]}")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-compare]")).to_be_hidden()
    expect(page.locator("[data-ticked]").first).to_have_text("1")
    page.locator("summary", has_text="Tag 1").click()
    page.locator("#tag-name").fill("too long")
    page.get_by_role("button", name="Tag", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("Tagged 1 rollout “too long”")
    assert asked(page) == {"run": ["1"], "sort": ["reward"]}
    assert RolloutTag.across_teams.get().rollout.completion == "cut short"
    page.locator("summary", has_text="Tag").click()
    page.locator("#tag-name").focus()
    expect(page.locator("#tag-names option")).to_have_text("too long")  # offered the next time
    page.keyboard.press("Escape")
    opened = page.locator("[data-row]").nth(2)
    opened.click(position={"x": 5, "y": 5})
    opened.press("Enter")
    page.wait_for_url("**/rollouts/*/?list=**")
    assert asked(page) == {"list": ["run=1&sort=reward"]}
    page.goto("/rollouts/?run=1&sort=reward")  # whoever comes back finds the row
    expect(opened).to_have_attribute("aria-current", "true")


def test_the_ticked_rollouts_are_labelled_or_all_when_none_is(page: Page, run: Run) -> None:
    page.goto("/rollouts/?run=1&sort=reward")
    rows(page, 7)
    label = page.locator("[data-label-link]")
    expect(label).to_have_text("Label these")
    ticks = page.locator("input[name=id]")
    for place in (1, 2, 3):
        ticks.nth(place).check()
    ticks.nth(3).uncheck()
    expect(label).to_have_text("Label 2 selected")
    page.keyboard.press("l")
    page.wait_for_url("**/label/new/**")
    preview = page.get_by_role("complementary", name="Preview")
    expect(preview).to_contain_text("2 rollouts checked")  # of two groups: no pair
    page.go_back()
    expect(label).to_have_text("Label 2 selected")  # they are still ticked
    page.locator("[data-all]").check()
    page.locator("[data-all]").uncheck()
    expect(label).to_have_text("Label these")
    label.click()
    page.wait_for_url("**/label/new/**")
    expect(preview).to_contain_text("7 rollouts checked")  # the two answers of each group are the same


@pytest.mark.own_context  # for its clock
def test_new_rollouts_wait_until_they_are_asked_for(page: Page, run: Run) -> None:
    Run.across_teams.filter(pk=run.pk).update(status=Status.RUNNING)
    page.clock.install()
    page.goto("/rollouts/?run=1")
    rows(page, 7)
    add(run, [rollout(5)])
    page.clock.fast_forward(11_000)
    pill = page.get_by_role("button", name="New rollouts")
    expect(pill).to_be_visible()
    rows(page, 7)
    pill.click()
    rows(page, 8)
    expect(pill).to_be_hidden()


def test_columns_and_views_keep_what_a_person_chose(page: Page, run: Run) -> None:
    page.goto("/rollouts/?f=step:ge:2")
    page.get_by_role("link", name="Reward", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_count(1)
    page.locator("summary", has_text="Columns").click()
    page.locator(".column-choices").get_by_text("Prompt").click()
    page.locator("[data-columns]").get_by_role("button", name="Apply").click()
    expect(page.locator("th", has_text="Prompt")).to_have_count(0)
    assert asked(page) == {"f": ["step:ge:2"], "sort": ["-reward"], "cols": ["-prompt"]}
    page.locator("summary", has_text="Views").click()
    page.locator("#view-name").fill("late")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".browse-head h1 + p")).to_have_text("View “late”")
    page.get_by_role("link", name="Reward", exact=True).click()
    expect(page.locator(".browse-head h1 + p")).to_have_text("View “late”, changed")
    page.locator("summary", has_text="Views").click()
    page.get_by_role("button", name="Update “late”").click()
    expect(page.locator(".browse-head h1 + p")).to_have_text("View “late”")
    assert SavedView.across_teams.get().query == "f=step%3Age%3A2&sort=reward&cols=-prompt"
    page.locator("summary", has_text="Views").click()
    page.get_by_role("button", name="Delete this view").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".browse-head h1 + p")).to_have_text("View “late”")


def test_no_text_runs_or_hides(page: Page, run: Run) -> None:
    texts = [stored(payload) for payload in PAYLOADS]
    hostile: list[AnyEvent] = [
        rollout(5, 0, at, completion=text, prompt=[Message("user", text)], rewards={text or "r": 1.0}, filtered=text, finish_reason="stop")
        for at, text in enumerate(texts)
    ]
    add(run, hostile)
    Run.across_teams.filter(pk=run.pk).update(name=PAYLOADS[1])
    page.goto("/rollouts/?f=step:eq:5&cols=filtered")
    rows(page, len(texts))
    for _ in texts:
        page.keyboard.press("j")
    page.keyboard.press(" ")
    expect(page.locator("#preview")).to_contain_text("reward 1")
    page.locator("summary", has_text="Columns").click()
    page.keyboard.press("Escape")
    page.keyboard.press("+")
    body = page.locator("#browse-page").text_content() or ""
    for text in (PAYLOADS[0], PAYLOADS[1], PAYLOADS[8], "⟨U+202E⟩"):
        assert text in body
    assert "\u202e" not in body
    assert page.locator("#browse-page :is(img, script, iframe, svg[onload], b)").count() == 0
    assert page.evaluate(f"window.{MARK}") is None


def test_it_is_a_plain_form_without_scripts(without_scripts: Page, run: Run) -> None:
    page = without_scripts
    page.goto("/rollouts/?f=step:le:4")
    page.locator("summary", has_text="Add filter").click()
    page.locator("#add-field").select_option("reward")
    page.locator("#add-operator").select_option("lt")
    page.locator("#add-value").fill("0")
    page.get_by_role("button", name="Add", exact=True).click()
    rows(page, 1)
    expect(page.locator(".filter-chip")).to_have_count(2)
    page.get_by_role("link", name="Length", exact=True).click()
    rows(page, 1)
    expect(page.locator("th[aria-sort]")).to_have_count(1)


def test_a_narrow_page_does_not_scroll_sideways(page: Page, run: Run) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/rollouts/?run=1&f=step:le:4&re=answer&q=&f=reward:ge:-5&f=length:ge:0")
    rows(page, 6)
    for menu in ("Add filter", "Views", "Columns", "Export"):
        page.locator("summary", has_text=menu).click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390, menu
        page.keyboard.press("Escape")
