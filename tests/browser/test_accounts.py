"""The way in: set-up link, sign-in, theme, keys."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from lab.teams.accounts import setup_link
from lab.teams.accounts.models import User


def test_the_set_up_link_leads_into_an_empty_lab_and_sign_in_works_after(page: Page) -> None:
    path = setup_link.create_setup_link()
    assert path is not None
    page.goto(path)
    page.get_by_label("Your name").fill("Ada Byron")
    page.get_by_label("E-mail address").fill("ada@example.org")
    page.get_by_label("Password").fill("password123")
    page.get_by_label("Team name").fill("Engines")
    page.get_by_role("button", name="Create the lab").click()
    expect(page.get_by_text("too common")).to_be_visible()
    expect(page.get_by_label("Team name")).to_have_value("Engines")
    page.get_by_label("Password").fill("a long enough secret")
    page.get_by_role("button", name="Create the lab").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    expect(page.get_by_text("Welcome, Ada Byron")).to_be_visible()

    page.get_by_text("Engines").first.click()
    page.get_by_role("button", name="Sign out").click()
    page.goto("/runs/")
    page.get_by_label("E-mail address").fill("ada@example.org")
    page.get_by_label("Password").fill("a long enough secret")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()


def test_the_theme_follows_the_choice_and_stays(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.emulate_media(color_scheme="light")
    page.goto("/runs/")
    light = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bg')")
    page.locator("details[data-menu] summary").click()
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bg')")
    assert light.startswith("rgb(")
    assert dark.startswith("rgb(")
    assert light != dark
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bg')") == dark


@pytest.mark.feature(60)
def test_keys_work_and_are_listed_but_not_while_typing(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Launch a run")
    page.keyboard.press("c")
    assert page.url.endswith("/runs/")  # the dialog is open
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url("**/workers/")
    page.keyboard.press("c")
    page.wait_for_url("**/launch/")
    page.goto("/launch/grpo/")
    page.get_by_label("Name", exact=True).fill("c")
    page.keyboard.press("c")
    assert page.url.endswith("/launch/grpo/")


CONTRAST = """() => {
  const parse = (text) => {
    const parts = text.match(/[\\d.]+/g).map(Number).slice(0, 3);
    return text.startsWith("color(") ? parts : parts.map((value) => value / 255);
  };
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (color) => parse(color).map(linear).reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const ratio = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((p, q) => q - p);
    return (high + 0.05) / (low + 0.05);
  };
  const style = getComputedStyle(document.documentElement);
  const found = {};
  const compare = (front, back, least) => {
    found[`${front} on ${back}`] = ratio(style.getPropertyValue(front), style.getPropertyValue(back)) / least;
  };
  for (const text of ["--text", "--muted", "--accent", "--good", "--bad", "--warn", "--info"]) {
    for (const ground of ["--bg", "--surface", "--surface-2"]) compare(text, ground, 4.5);
  }
  compare("--accent-ink", "--accent", 4.5);
  for (const line of ["--border-strong", "--focus", ...[1, 2, 3, 4, 5, 6, 7, 8].map((n) => `--series-${n}`)]) compare(line, "--surface", 3);
  for (const chip of document.querySelectorAll(".chip")) {
    const colors = getComputedStyle(chip);
    found[`chip ${chip.dataset.status}`] = ratio(colors.color, colors.backgroundColor) / 4.5;
  }
  return found;
}"""


def test_text_and_lines_have_enough_contrast_in_both_themes(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto("/runs/")
        page.evaluate(
            """() => { for (const status of ["queued", "starting", "running", "stopping", "stopped", "finished", "failed", "lost"]) {
              const chip = Object.assign(document.createElement("span"), { className: "chip", textContent: status });
              chip.dataset.status = status; document.querySelector("main").append(chip); } }"""
        )
        weak = {pair: round(value, 3) for pair, value in page.evaluate(CONTRAST).items() if value < 1}
        assert weak == {}, scheme


def test_no_page_is_wider_than_a_phone_or_a_page_at_twice_the_size(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    for width in (390, 720):
        page.set_viewport_size({"width": width, "height": 800})
        for path in (
            "/runs/",
            "/launch/",
            "/launch/grpo/",
            "/launch/demo/",
            "/workers/",
            "/audit/",
            "/team/",
            "/accounts/password/change/",
            "/nothing/",
        ):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} at {width}"


CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'"


def test_every_page_works_under_a_strict_content_security_policy(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text) if "Content Security Policy" in message.text else None)

    def with_policy(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": CSP})

    page.route(lambda url: "/static/" not in url, with_policy)
    for path in ("/runs/", "/launch/", "/workers/", "/accounts/password/change/", "/nothing/", "/launch/grpo/"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
    expect(page.get_by_text("Ready to launch")).to_be_visible()
    page.get_by_label("Steps", exact=True).fill("20")
    expect(page.get_by_text("Changed from the recipe")).to_be_visible()
    assert refused == []
