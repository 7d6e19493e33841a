"""An episode of search-r2 with a cut: a person judges the turn that was cut by keys, takes it back, prefers a branch, and makes data of it.

The tree of its group is walked by arrow keys.
"""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.data.datasets.freezing import build_version
from lab.data.datasets.models import Version
from lab.rollouts.annotations.models import TurnPreference, TurnVerdict
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.conftest import until
from tests.browser.page_checks import AXE_SCRIPT, find_cuts, find_violations
from tests.lab.reading.episodes import BETTER, CUT, CUT_BRANCH, KEPT_BRANCH, SEARCH, WORSE, tell_episode
from tests.lab.supervisor.spools import make_run, measured, rollout, started, store

SPEC = {"recipe": "search-r2", "task": {"name": "search", "difficulty": "medium"}, "methods": [{"name": "grpo"}, {"name": "search-r2"}]}


@pytest.fixture
def run(team: Team) -> Run:
    made = make_run(team, status=Status.FINISHED, name="search-r2", task="search", recipe="search-r2", spec=SPEC)
    store(made, started(), *(rollout(sample=sample, **tell_episode(reward=float(sample))) for sample in range(2)), measured(1))
    return made


def live_verdicts() -> list[tuple[int, str]]:
    return list(TurnVerdict.across_teams.filter(withdrawn_at=None).values_list("node", "verdict"))


def test_a_bad_cut_is_labelled_and_becomes_data(page: Page, run: Run, owner: User, sign_in: Callable[[User], None]) -> None:
    one = Rollout.across_teams.get(sample=0)
    page.add_init_script(path=AXE_SCRIPT)
    sign_in(owner)
    page.goto(f"/rollouts/{one.pk}/")
    fork = page.locator(".fork-view")
    expect(fork).to_contain_text(CUT)
    expect(fork.locator(".fork-branch.gone")).to_contain_text(WORSE)
    expect(fork.locator(".fork-branch:not(.gone)")).to_contain_text(BETTER)
    until(page, "document.getElementById('annotation-panel') !== null")

    # Turns by keys: search, the one in place of the cut, the answer, then what was cut.
    current = page.locator("#episode-nodes [aria-current]")
    for _ in range(4):
        page.keyboard.press("v")
        page.keyboard.press("j")
    expect(current).to_have_attribute("data-node", str(CUT_BRANCH))
    page.keyboard.press("v")
    page.keyboard.press("b")
    expect(current.get_by_role("button", name="bad")).to_have_attribute("aria-pressed", "true")
    assert live_verdicts() == [(CUT_BRANCH, "bad")]
    page.keyboard.press("u")
    expect(current.get_by_role("button", name="bad")).to_have_attribute("aria-pressed", "false")
    assert live_verdicts() == []
    page.keyboard.press("v")
    page.keyboard.press("b")
    expect(current.get_by_role("button", name="bad")).to_have_attribute("aria-pressed", "true")

    fork.locator(".fork-branch:not(.gone)").get_by_role("button", name="Prefer").click()
    expect(fork.locator(".fork-branch.preferred")).to_contain_text(BETTER)
    assert TurnPreference.across_teams.filter(withdrawn_at=None).values_list("chosen", "rejected").get() == (KEPT_BRANCH, CUT_BRANCH)
    page.reload()
    expect(fork.locator(".fork-branch.preferred")).to_contain_text(BETTER)
    assert find_violations(page) == []
    assert find_cuts(page) == []

    page.get_by_role("link", name="Dataset of step pairs").click()
    expect(page.get_by_label("Labels on turns of episodes")).to_be_checked()
    page.get_by_label("Name").fill("Cuts")
    page.get_by_role("button", name="Create dataset").click()
    expect(page.locator("#preview .pair-row")).to_have_count(1)
    page.get_by_label("Test split (share of prompts)").fill("0")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Freeze version 1").click()
    expect(page.get_by_text("Waiting for a worker")).to_be_visible()
    build_version(Version.across_teams.get().pk)
    row = page.locator(".pair-row")
    expect(row).to_contain_text(f"nodes {KEPT_BRANCH} over {CUT_BRANCH}")
    expect(row.locator(".pair-prompt")).to_contain_text(SEARCH)
    assert find_cuts(page) == []
    page.get_by_role("link", name="Train").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cuts")


def test_the_tree_of_a_group_is_walked_by_keys(page: Page, run: Run, owner: User, sign_in: Callable[[User], None]) -> None:
    page.add_init_script(path=AXE_SCRIPT)
    sign_in(owner)
    page.goto(f"/runs/{run.pk}/groups/train/1/0/")
    page.keyboard.press("v")
    page.keyboard.press("t")
    tree = page.locator("#tree")
    expect(tree.locator(".tree-turn")).to_have_count(6)
    until(page, "document.querySelector('#tree-detail dl') === null")
    tree.locator(".tree-turn").first.focus()
    for key in ("ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    detail = page.locator("#tree-detail")
    expect(detail).to_contain_text(BETTER)
    page.keyboard.press("ArrowDown")
    expect(detail).to_contain_text(WORSE)
    expect(detail).to_contain_text(CUT)
    page.keyboard.press("ArrowLeft")
    expect(detail).to_contain_text(SEARCH)
    assert find_violations(page) == []
    assert find_cuts(page) == []
    page.locator("#tree-table summary").click()
    expect(page.locator("#tree-table tbody tr")).to_have_count(6)
    assert find_cuts(page) == []
    tree.locator(".tree-turn.gone").first.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/rollouts/\d+/#node-{CUT_BRANCH}$"))
    expect(page.locator("#episode-nodes [aria-current]")).to_have_attribute("data-node", str(CUT_BRANCH))


def test_five_hundred_turns_are_painted_within_a_second(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    """From the answer to the first paint of the page, by the browser's own clock; the picture is part of the page."""
    from tests.lab.reading.test_tree_pages import make_wide_group

    run = make_run(team, status=Status.FINISHED, task="search")
    make_wide_group(run, 16, 40)
    sign_in(owner)
    page.goto(f"/runs/{run.pk}/groups/train/1/0/tree/")
    expect(page.locator(".tree-turn")).to_have_count(500)
    times = json.loads(
        page.evaluate(
            """() => JSON.stringify({
              answered: performance.getEntriesByType("navigation")[0].responseEnd,
              painted: performance.getEntriesByName("first-contentful-paint")[0].startTime,
            })"""
        )
    )
    assert times["painted"] - times["answered"] < 1000, times
