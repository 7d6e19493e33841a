"""From a token to a pair in a queue: the panel with a real checkpoint's alternatives, continuations that are written, and people to compare them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.labelling.labels.models import Queue
from lab.models.branches import answering
from lab.models.branches.models import Branch, TokenAlternatives
from lab.teams.accounts.models import Team, User
from tests.browser.conftest import until
from tests.lab.branches.conftest import make_branchable, save_checkpoint


@pytest.mark.feature(99)
def test_a_token_is_branched_and_its_continuations_become_pairs(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    stored = make_branchable(team, owner)
    save_checkpoint(stored.run, 2)
    sign_in(owner)
    page.goto(f"/rollouts/{stored.pk}/")
    until(page, "document.getElementById('trajectory').dataset.ready === '1'")
    page.keyboard.press("b")
    expect(page.locator(".toast")).to_contain_text("Choose a token first")
    page.locator("#text").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("b")
    dialog = page.locator("#branch-dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Branch at token 3")
    expect(dialog.locator("[data-alternatives-list]")).to_contain_text("Asking the checkpoint")
    until(page, "document.querySelector('[data-branch-form]').dataset.asked")
    expect(dialog.get_by_label("Checkpoint")).to_contain_text("step 2: the policy that sampled this rollout")
    while not TokenAlternatives.across_teams.exists():
        page.wait_for_timeout(50)
    answering.answer_alternatives(str(TokenAlternatives.across_teams.get().pk))
    choices = dialog.locator(".branch-alternatives label")
    expect(choices).to_have_count(12)
    likely = TokenAlternatives.across_teams.get().result["tokens"][1]["id"]
    choices.nth(1).click()
    dialog.get_by_label("Continuations").fill("3")
    dialog.get_by_label("Max new tokens").fill("12")
    dialog.get_by_label("Temperature").fill("2")
    dialog.get_by_role("button", name="Sample continuations").click()
    expect(page.locator("h1")).to_contain_text("Branch at token 3")
    branch = Branch.across_teams.get()
    assert (branch.chosen, branch.count, branch.max_tokens) == (likely, 3, 12)
    answering.answer_branch(str(branch.pk))
    expect(page.locator("[data-sampling-status]")).to_have_text("finished")
    cards = page.locator("[data-samples] article")
    expect(cards).to_have_count(3)
    expect(cards.first).to_contain_text("against the group's mean")
    expect(cards.first.locator(".branch-point")).to_have_count(1)
    expect(page.locator("[data-place-facts]")).to_contain_text("entropy")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="Add to pair queue").click()
    expect(page.locator(".toast")).to_contain_text("added to")
    queue = Queue.across_teams.get()
    assert [item.rollouts[0] for item in queue.items.all()] == [stored.pk] * queue.items.count()
    page.goto(f"/runs/{stored.run_id}/groups/train/{stored.step}/0/")
    beside = page.locator("#group-branches")
    expect(beside.locator(".branch-rows li")).to_have_count(3)
    expect(beside).to_contain_text("Not part of the group")
    page.goto(f"/rollouts/{stored.pk}/?token=3")
    expect(page.locator("#branches")).to_contain_text("token 3")
