"""Promotion in a browser: a researcher asks, the gate stays shut without votes, people vote, an admin approves."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.models.policies.models import Alias, Proposal
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.lab.policies.making import final_of, matched, vote


def test_a_policy_is_asked_for_refused_without_votes_and_approved_by_a_second_person(
    page: Page, team: Team, owner: User, teammate: User, sign_in: Callable[[User], None]
) -> None:
    run, match = matched(team, teammate, prompts=24)
    checkpoint = final_of(run)
    sign_in(teammate)
    page.goto("/policies/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("final policy")
    expect(page.locator("#gate")).to_contain_text("0 of 20")
    expect(page.get_by_role("table", name="Files of the checkpoint")).to_contain_text("model.safetensors")
    page.get_by_label("Reason optional").fill("it solves more <b>problems</b>")
    page.get_by_role("button", name="Request “production”").click()
    expect(page.locator(".toast")).to_contain_text("an admin decides")
    proposal = Proposal.across_teams.get()

    page.context.clear_cookies()
    sign_in(owner)
    page.goto(f"/policies/proposals/{proposal.pk}/")
    expect(page.locator(".said")).to_have_text("it solves more <b>problems</b>")
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    page.get_by_role("button", name="Refuse").click()
    expect(page.locator(".toast")).to_contain_text("Enter a comment")
    assert Alias.across_teams.get().checkpoint is None

    vote(match, make_member("labels@example.org", team, Role.ANNOTATOR), 20, 4)
    page.reload()
    expect(page.locator(".condition.is-unmet")).to_have_count(0)
    page.get_by_label("Comment").fill("agreed")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".banner.good")).to_contain_text("Approved")
    assert Alias.across_teams.get().checkpoint_id == checkpoint.pk
    page.goto("/policies/")
    expect(page.locator("tr", has_text="final policy").locator(".badge.good")).to_have_text("production")
    page.set_viewport_size({"width": 390, "height": 800})
    for path in ("", f"{checkpoint.pk}/", "aliases/", "retention/", "hub/"):
        page.goto(f"/policies/{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
