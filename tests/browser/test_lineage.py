"""The lineage graph in a browser: by keyboard, on a phone, and the way from a version to a run."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.data.datasets.models import Version
from lab.data.loop.models import Match
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.lab.loop.making import finished_run, frozen, heldout, labelled_queue, sampled


@pytest.fixture
def version(team: Team, owner: User, sign_in: Callable[[User], None]) -> Version:
    sign_in(owner)
    run = finished_run(team, owner, *sampled(50, 52), *heldout(0, ["a", "b"]), *heldout(100, ["c", "d"]))
    return frozen(team, owner, labelled_queue(team, owner, run))


@pytest.mark.feature(75)
def test_the_graph_is_walked_by_keyboard_and_fits_a_phone(page: Page, version: Version) -> None:
    page.goto(f"/lineage/?version={version.pk}")
    nodes = page.locator("#lineage .node")
    assert nodes.count() == 5  # task, run, the policies that sampled, labels, version
    overhang = """[...document.querySelectorAll('#lineage .node-text > span')].map((one) => {
        const box = one.closest('.node').querySelector('rect').getBoundingClientRect();
        return Math.round(one.getBoundingClientRect().right - box.right); })"""
    assert max(page.evaluate(overhang)) < 0
    page.locator("#lineage").focus()
    page.keyboard.press("Tab")
    expect(nodes.first).to_be_focused()
    page.set_viewport_size({"width": 390, "height": 800})
    page.reload()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    root = page.locator("#lineage .node.root")
    expect(root).to_be_in_viewport()
    root.click()
    expect(page).to_have_url(re.compile(rf"/datasets/versions/{version.pk}/$"))


def test_from_a_version_to_a_run_whose_page_waits_for_the_match(page: Page, version: Version) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"/datasets/versions/{version.pk}/train/")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_label("Steps", exact=True).fill("0")
    page.get_by_role("button", name="Train DPO").click()
    expect(page.get_by_text("Nothing was launched.")).to_be_visible()
    page.get_by_label("Steps", exact=True).fill("21")
    page.get_by_role("button", name="Train DPO").click()
    expect(page.get_by_role("heading", name="Win rate", exact=True)).to_be_visible()
    expect(page.get_by_text("Starts automatically when this run has finished")).to_be_visible()
    run = Run.across_teams.get(trainer="dpo")
    assert (run.total_steps, run.spec["dataset"]["sha256"]) == (21, version.counts["sha256"]["train"])
    assert Match.across_teams.get().child == run
