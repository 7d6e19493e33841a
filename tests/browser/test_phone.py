"""The frame of the pages on a phone: a menu in the place of a strip of links, toasts that hide nothing."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.teams.accounts.models import User
from tests.browser.conftest import of_module, until

OVERLAP = """() => {
  const toast = document.querySelector("[data-toasts]").getBoundingClientRect();
  const parts = [...document.querySelectorAll("main :is(a, button, input, h1)")].filter((one) => one.checkVisibility());
  return parts.map((one) => one.getBoundingClientRect()).filter((box) => box.bottom > toast.top && box.top < toast.bottom).length;
}"""


def test_the_menu_opens_over_the_page_and_leads_on(page: Page, sign_in: Callable[[User], None], owner: User) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    sign_in(owner)
    page.goto("/runs/")
    menu, button = page.get_by_role("navigation", name="Main"), page.get_by_role("button", name="Menu", exact=True)
    expect(menu).to_be_hidden()
    assert page.locator(".rail").bounding_box()["height"] < 844 / 10  # type: ignore[index]
    button.click()
    expect(menu.get_by_role("link", name="Launch")).to_be_visible()
    expect(menu.get_by_role("link", name="Audit log")).to_be_in_viewport()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(button).to_be_focused()
    button.click()
    menu.get_by_role("link", name="Datasets").click()
    page.wait_for_url("**/datasets/")
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(menu).to_be_visible()
    expect(button).to_be_hidden()


def test_a_toast_moves_the_page_down_and_hides_nothing_of_it(page: Page, sign_in: Callable[[User], None], owner: User) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    sign_in(owner)
    page.goto("/launch/grpo/")
    before = page.locator("h1").bounding_box()
    page.evaluate(of_module("base/page.js", "module.showToast('Something happened that takes two lines to say on a phone.', '', 60)"))
    until(page, "document.querySelector('[data-toasts]').getBoundingClientRect().height > 30")
    assert page.locator("h1").bounding_box()["y"] > before["y"] + 30  # type: ignore[index]
    assert page.evaluate(OVERLAP) == 0
