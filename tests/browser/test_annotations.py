"""Annotating a trajectory by keyboard: tags, rating, comments on selected tokens, step marks, undo, drafts, and news from others."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.rollouts.annotations import verbs
from lab.rollouts.annotations.models import Comment, Rating, RolloutTag, StepMark
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Status
from tests.browser.conftest import WebProcess
from tests.browser.training import add
from tests.conftest import make_member
from tests.lab.supervisor.spools import make_run, rollout, started
from trainers.contract.arrays import pack_array, pack_ids

PARTS = ["Two", " plus", " two", ".", "\n\n", "It", " is", " 5", ".", "\n\n", "<answer>", "5", "</answer>"]
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"  # looks for news at once instead of within ten seconds
SELECT = """([first, last]) => { const unit = (at) => document.querySelector(`#text [data-first="${at}"]`).firstChild;
  getSelection().setBaseAndExtent(unit(first), 0, unit(last), unit(last).length); }"""


@pytest.fixture
def one(team: Team, owner: User, sign_in: Callable[[User], None]) -> Rollout:
    sign_in(owner)
    run = make_run(team, status=Status.FINISHED)
    zeros = pack_array([0.0] * len(PARTS), "e")
    arrays = {
        "ids": pack_ids(range(10, 10 + len(PARTS))),
        "lengths": pack_array([len(part) for part in PARTS], "H"),
        "logprobs": zeros,
        "entropies": zeros,
    }
    add(run, [started(), rollout(1, completion="".join(PARTS), length=len(PARTS), **arrays), rollout(1, 0, 1)])
    return Rollout.objects.get(run=run, sample=0)


def visit(page: Page, one: Rollout, query: str = "") -> None:
    page.goto(f"/rollouts/{one.pk}/{query}")
    expect(page.locator("#trajectory")).to_have_attribute("data-ready", "1")
    expect(page.locator("#annotation-panel")).to_be_visible()


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


@pytest.mark.feature(108)
def test_everything_is_done_by_keyboard_and_undone_by_u(page: Page, one: Rollout, owner: User) -> None:
    visit(page, one)
    press(page, "t")
    page.keyboard.type("arithmetic")
    press(page, "Enter")
    expect(page.locator(".tag-chip")).to_contain_text("arithmetic")
    press(page, "Escape", "r", "2")
    expect(page.locator("[data-part=rating] [aria-pressed=true]")).to_have_text("2")
    press(page, "m", "g")
    expect(page.locator(".step-marks li").nth(1)).to_have_attribute("aria-current", "step")
    press(page, "m", "b")
    expect(page.locator('[data-part=steps] .mark-button[aria-pressed="true"]')).to_have_text(["✓ good", "✗ bad"])
    expect(page.locator('#text [data-first="5"]')).to_have_class("unit step-bad step-bad-first")
    page.evaluate(SELECT, [5, 7])
    press(page, "c")
    expect(page.locator(".comment-form [data-quote]")).to_have_text("It is 5")
    page.keyboard.type("2 + 2 is 4, u know")  # keys do nothing while typing
    press(page, "Control+Enter")
    expect(page.locator(".thread .said-text")).to_have_text("2 + 2 is 4, u know")
    expect(page.locator("#text .commented")).to_have_text(["It", " is", " 5"])
    comment = Comment.across_teams.get()
    assert (comment.start, comment.end, comment.snapshot, comment.user) == (5, 8, "It is 5", owner)
    assert sorted(StepMark.across_teams.values_list("start", "end", "mark")) == [(0, 5, "good"), (5, 10, "bad")]
    press(page, "Escape", "u")
    expect(page.locator(".thread")).to_have_count(0)
    press(page, "u")
    expect(page.locator('[data-part=steps] .mark-button[aria-pressed="true"]')).to_have_text(["✓ good"])
    press(page, "u")
    expect(page.locator('[data-part=steps] .mark-button[aria-pressed="true"]')).to_have_count(0)
    page.reload()  # what can be undone is known after a reload too
    expect(page.locator("[data-part=rating] [aria-pressed=true]")).to_have_text("2")
    press(page, "u")
    expect(page.locator("[data-part=rating] [aria-pressed=true]")).to_have_count(0)
    press(page, "u")
    expect(page.locator(".tag-chip")).to_have_count(0)
    assert [model.across_teams.count() for model in (RolloutTag, Rating, StepMark)] == [0, 0, 0]
    assert not Comment.across_teams.filter(deleted_at=None).exists()


def test_the_step_of_the_token_one_stands_on_is_the_one_that_is_marked(page: Page, one: Rollout) -> None:
    visit(page, one)
    page.locator('#text [data-first="11"]').click()
    expect(page.locator('.step-marks li[aria-current="step"] .step-goto')).to_have_text("3")
    press(page, "m", "x")
    expect(page.locator('[data-part=steps] .mark-button[aria-pressed="true"]')).to_have_text("– neutral")
    assert list(StepMark.across_teams.values_list("start", "mark")) == [(10, "neutral")]


def test_a_draft_survives_a_reload_and_a_lab_that_is_away(page: Page, one: Rollout, web: WebProcess) -> None:
    visit(page, one)
    page.evaluate(SELECT, [0, 2])
    press(page, "c")
    page.keyboard.type("half a thought")
    page.reload()
    expect(page.locator(".comment-form textarea")).to_have_value("half a thought")
    expect(page.locator(".comment-form [data-quote]")).to_have_text("Two plus two")
    web.stop()
    page.locator(".comment-form textarea").press("Control+Enter")
    expect(page.locator(".comment-form [data-error]")).to_contain_text("is unreachable")
    web.start()
    page.locator(".comment-form textarea").press("Control+Enter")
    expect(page.locator(".thread .said-text")).to_have_text("half a thought")
    expect(page.locator(".comment-form textarea")).to_have_value("")
    page.reload()
    expect(page.locator(".thread")).to_have_count(1)
    expect(page.locator(".comment-form textarea")).to_have_value("")
    assert Comment.across_teams.get().snapshot == "Two plus two"
    page.locator(".comment-form textarea").fill("signed out")
    page.context.clear_cookies()
    page.locator(".comment-form textarea").press("Control+Enter")
    expect(page.locator(".comment-form [data-error]")).to_contain_text("You are signed out")
    expect(page.locator(".comment-form textarea")).to_have_value("signed out")


def test_what_others_say_appears_and_takes_nothing_away(page: Page, one: Rollout, team: Team, owner: User, teammate: User) -> None:
    mine = Comment.across_teams.get(pk=verbs.start_comment_thread(team, owner, one, "first").made)
    visit(page, one)
    page.locator(".thread summary", has_text="Reply").click()
    answer = page.locator(".thread .answer textarea").first
    answer.fill("I am writ")
    verbs.answer_thread(team, teammate, mine, "an answer meanwhile")
    verbs.start_comment_thread(team, teammate, one, "another thread", "0", "3")
    verbs.tag_rollout(team, teammate, one, "from afar")
    verbs.mark_step(teammate, one, "0", "bad")
    page.evaluate(LOOK)
    expect(page.locator(".thread .said-text")).to_have_text(["first", "an answer meanwhile", "another thread"])
    expect(page.locator(".tag-chip")).to_contain_text("from afar")
    expect(page.locator("#text .commented")).to_have_text(["Two", " plus", " two"])
    expect(page.locator('#text [data-first="0"]')).to_have_class("unit commented step-bad step-bad-first")
    expect(answer).to_be_focused()
    page.keyboard.type("ing")
    press(page, "Control+Enter")
    expect(page.locator(".thread .said-text")).to_have_text(["first", "an answer meanwhile", "I am writing", "another thread"])
    page.locator(".thread summary", has_text="Edit").first.click()
    edited = page.locator(".thread .edit[open] textarea")
    edited.fill("first, more exactly")
    verbs.resolve_thread(teammate, mine)
    page.evaluate(LOOK)
    page.wait_for_timeout(300)
    expect(edited).to_have_value("first, more exactly")  # the thread waits until the writing is sent
    edited.press("Control+Enter")
    expect(page.locator(".thread .said-text").first).to_have_text("first, more exactly")
    expect(page.locator(".thread").first).to_contain_text("resolved by teammate@example.org")


def test_deleting_is_undone_from_the_toast_and_a_link_opens_its_comment(page: Page, one: Rollout, team: Team, owner: User) -> None:
    made = verbs.start_comment_thread(team, owner, one, "look at this", "10", "13").made
    verbs.start_comment_thread(team, owner, one, "on the whole")
    page.goto("/comments/")
    page.get_by_role("link", name="tokens 10–13").click()
    expect(page.locator(f"#comment-{made}")).to_have_class("said-comment linked")
    expect(page.locator("#text .comment-shown")).to_have_text(["<answer>", "5", "</answer>"])
    assert page.url.endswith(f"?comment={made}")
    page.locator(f"#comment-{made}").get_by_role("button", name="Delete").click()
    expect(page.locator(".thread")).to_have_count(1)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".thread")).to_have_count(2)
    page.goto(f"/rollouts/{one.pk}/?comment=999999")
    expect(page.locator(".toast")).to_contain_text("was deleted, or is about another rollout")


def test_a_viewer_reads_marks_and_comments_but_finds_nothing_to_send(
    page: Page, one: Rollout, team: Team, owner: User, sign_in: Callable[[User], None]
) -> None:
    verbs.start_comment_thread(team, owner, one, "for all to read", "0", "2")
    verbs.mark_step(owner, one, "0", "good")
    sign_in(make_member("viewer@example.org", team, Role.VIEWER))
    visit(page, one)
    expect(page.locator(".thread .said-text")).to_have_text("for all to read")
    expect(page.locator('#text [data-first="0"]')).to_have_class("unit commented step-good step-good-first")
    margin = page.evaluate("getComputedStyle(document.querySelector('#text .chunk')).paddingLeft")
    assert float(margin.removesuffix("px")) <= 28  # marks have a narrow margin: the text was indented by 80 pixels
    assert page.locator("#annotation-panel :is(form, textarea, input)").count() == 0
    press(page, "c", "m", "b", "u")
    assert StepMark.across_teams.get().mark == "good"


def test_annotating_works_without_scripts(without_scripts: Page, one: Rollout) -> None:
    page = without_scripts
    page.goto(f"/rollouts/{one.pk}/annotations/")
    page.get_by_label("Rate 4").click()
    page.goto(f"/rollouts/{one.pk}/annotations/")
    page.get_by_label("Comment", exact=True).fill("no scripts here")
    page.get_by_role("button", name="Comment").first.click()
    page.goto(f"/rollouts/{one.pk}/annotations/")
    expect(page.locator(".thread .said-text")).to_have_text("no scripts here")
    assert Rating.across_teams.get().value == 4
