"""What-if replay in a browser: asking, waiting, tokens whose sign turns, and whatever a policy wrote shown as text."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.rollouts.replay.answers import answer_question
from lab.rollouts.replay.models import Replay
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.browser.training import add
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started
from tests.lab.test_replay import events, spec
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message

TEXTS = [stored(text) for text in PAYLOADS if text][:32]


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    sign_in(owner)
    run = make_run(team, spec=spec())
    add(run, [started(), *events(1), *events(2)])
    return run


def turned(page: Page, run: Run, query: str) -> Replay:
    """A question that turns every sign, asked in the form and answered while the page waits."""
    page.goto(f"/runs/{run.pk}/what-if/{query}")
    page.get_by_text("Reward weights").click()
    page.get_by_label("correct").fill("-1")
    page.get_by_role("button", name="Replay").last.click()
    expect(page.get_by_text("Waiting for a worker.")).to_be_visible()
    replay = Replay.across_teams.latest("created_at")
    answer_question(str(replay.pk))
    expect(page.locator(".figures")).to_be_visible()
    return replay


def test_from_the_question_to_the_tokens_that_turn(page: Page, run: Run) -> None:
    page.goto(f"/runs/{run.pk}/what-if/?step=1")
    page.get_by_label("Group").select_option("0")
    assert page.url.endswith("?step=1&group=0")
    page.get_by_label("Add a method").fill("rs-grpo")
    page.get_by_label("Add a method").press("Enter")  # adds; asks nothing
    expect(page.locator(".stack-card")).to_have_count(1)
    page.get_by_role("button", name="Remove rs-grpo").click()
    expect(page.locator(".stack-card")).to_have_count(0)
    turned(page, run, "?step=1&group=0")
    members = page.locator("[data-member]")
    expect(members).to_have_count(4)
    expect(members.first.locator('[data-side="after"] .unit.flipped')).to_have_count(4)
    expect(members.first.locator(".flip-first")).to_have_count(2)  # one frame a side, begun by its mark
    expect(members.first.locator("[data-flips]")).to_contain_text("pushed the other way")
    before = members.first.locator('[data-side="before"] .unit').first
    after = members.first.locator('[data-side="after"] .unit').first
    assert ("negative" in (before.get_attribute("class") or "")) != ("negative" in (after.get_attribute("class") or ""))
    before.hover()
    expect(page.locator("#replay-card")).to_contain_text("another")
    expect(after).to_have_class(re.compile("active"))
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(members.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(members.nth(0)).to_be_focused()
    page.get_by_label("Order").select_option(label="best what-if first")
    expect(page).to_have_url(re.compile("sort=replayed"))
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_hostile_completions_are_text(page: Page, run: Run) -> None:
    made = []
    for sample, text in enumerate(TEXTS):
        count = min(len(text), 400)
        arrays = {
            "ids": pack_ids([5] * count),
            "lengths": pack_array([1] * (count - 1) + [len(text) - count + 1], "H"),
            "logprobs": b"",
            "entropies": b"",
        }
        given = {"correct": float(sample % 2), "format": 1.0, "working": 0.0}
        own = {"rewards": given, "reward": given["correct"], "advantage": given["correct"] - 0.5, "completion": text}
        made.append(rollout(3, sample // 4, sample % 4, prompt=[Message("user", text[:2000])], **own, **arrays))
    add(run, made)
    turned(page, run, "?step=3")
    page.goto(f"{page.url}?sort=place")
    for member in page.locator("[data-member]").all():
        member.scroll_into_view_if_needed()
    expect(page.locator("[data-member]:has(.unit)")).to_have_count(24)
    expect(page.locator("[data-member] .unit.flipped").first).to_be_visible()
    assert page.locator("#replay :is(img, script, iframe, svg[onload])").count() == 0
    assert page.evaluate(f"window.{MARK}") is None
    body = page.locator("#replay").text_content() or ""
    assert "<img src=x onerror=" in body
    assert "\u202e" not in body
