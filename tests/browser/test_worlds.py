"""An episode of a world played in a browser, turn by turn, and its pages in both themes and at three widths."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.teams.accounts.models import User
from tests.browser.page_checks import AXE_SCRIPT, find_cuts, find_violations
from trainers.tasks.registry import get_task
from trainers.worlds.base import World


def test_a_person_plays_the_policy(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    world = get_task("search")
    assert isinstance(world, World)
    example = world.examples("train", 2, 0, "medium")[1]
    *searches, answer = world.way(example, world.begin(example))
    page.add_init_script(path=AXE_SCRIPT)
    sign_in(owner)
    page.goto("/methods/")
    page.get_by_role("link", name="Worlds", exact=True).click()
    page.get_by_role("link", name=world.title).click()
    page.get_by_label("Difficulty").select_option("medium")
    page.get_by_label("Example").select_option("2")
    play = page.locator("#play")
    expect(play).to_contain_text(example.prompt[0].content)

    turn = page.get_by_label("Your turn")
    for number, search in enumerate(searches, 1):
        turn.fill(search)
        page.get_by_role("button", name="Take the turn").click()
        expect(play).to_contain_text(f"{world.max_turns - number} left")
        expect(turn).to_be_focused()  # the next turn can be written at once
    turn.fill(answer)
    page.get_by_role("button", name="Take the turn").click()
    expect(play.get_by_role("row", name="correct 1")).to_be_visible()
    assert find_violations(page) == []
    assert find_cuts(page) == []

    page.get_by_role("link", name="Play it again").click()
    turn.fill("<img src=x onerror=document.title='hit'>")
    page.get_by_role("button", name="Take the turn").click()
    expect(play).to_contain_text("The episode ended")
    expect(play).to_contain_text("<img src=x")
    assert page.locator("#play img").count() == 0
