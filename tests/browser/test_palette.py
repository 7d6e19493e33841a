"""Ctrl+K: any page, any act of the page, any search, by a few letters; nothing that the person may not open."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run

SignIn = Callable[[User], None]


def test_pages_acts_and_searches_are_found_by_letters_and_opened_by_keys(page: Page, owner: User, sign_in: SignIn) -> None:
    sign_in(owner)
    found = page.locator("#palette")
    page.goto("/runs/")
    page.keyboard.press("Control+k")
    expect(found.get_by_role("combobox", name="Search pages")).to_be_focused()
    page.keyboard.type("tok acc")
    expect(found.get_by_role("option").first).to_have_text("Access tokens page")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tokens/")

    page.keyboard.press("Control+k")
    page.keyboard.type("new access")
    expect(found.get_by_role("option").first).to_have_text("New access token this page")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tokens/new/")

    page.keyboard.press("Control+k")
    page.keyboard.type("inbox")
    expect(found.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(found.get_by_role("option", selected=True)).to_have_text("Search runs for “inbox” search")
    page.keyboard.press("Escape")
    expect(found).not_to_be_visible()
    assert page.url.endswith("/tokens/new/")


def test_a_run_is_found_by_number_and_by_name_and_opened(page: Page, team: Team, owner: User, sign_in: SignIn) -> None:
    given = {"team": team, "spec": {}, "recipe": "r", "trainer": "sft", "task": "t", "policy": "p", "status": "finished"}
    runs = [Run.objects.create(number=number, name=name, **given) for number, name in ((1, "<b>bold</b> try"), (2, "quiet try"))]
    sign_in(owner)
    found = page.locator("#palette")
    page.goto("/projects/")
    page.keyboard.press("Control+k")
    page.keyboard.type("bold")
    expect(found.get_by_role("option").first).to_have_text("#1 <b>bold</b> try run")
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    expect(found.get_by_role("option", selected=True)).to_have_text("#2 quiet try run")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{runs[1].pk}/")
