"""Deleting runs from the list, taking it back from the toast, and the pages of the bin with something in it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.models.bin import verbs
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.page_checks import AXE_SCRIPT, find_cuts, find_violations


def test_marked_runs_go_to_the_bin_and_come_back(page: Page, sign_in: Callable[[User], None], team: Team, owner: User) -> None:
    page.add_init_script(path=AXE_SCRIPT)
    given = {"spec": {}, "recipe": "r", "trainer": "sft", "task": "t", "policy": "p"}
    for number, status in ((1, Status.FINISHED), (2, Status.FAILED), (3, Status.QUEUED)):
        Run.objects.create(team=team, number=number, name=f"{'long ' * 18}{number}", status=status, **given)
    sign_in(owner)
    page.goto("/runs/")
    page.get_by_label("Select all runs on this page").check()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("queued, stop it first")).to_be_visible()
    assert [*find_violations(page), *find_cuts(page)] == []
    page.get_by_role("button", name="Put 2 runs in the bin").click()
    expect(page.locator("tr[data-run]")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("tr[data-run]")).to_have_count(3)
    verbs.put_runs_in_bin(team, owner, [1, 2])
    page.get_by_role("link", name="Bin").click()
    expect(page.get_by_role("button", name="Restore #1")).to_be_visible()
    assert [*find_violations(page), *find_cuts(page)] == []
    page.get_by_role("button", name="Delete now: #2").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("A worker does it within seconds.")).to_be_visible()
