"""The way in: set-up link, sign-in, theme, keys."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from lab.accounts import setup_link
from lab.accounts.models import User


def test_the_set_up_link_leads_into_an_empty_lab_and_sign_in_works_after(page: Page) -> None:
    path = setup_link.create()
    assert path is not None
    page.goto(path)
    page.get_by_label("Your name").fill("Ada Byron")
    page.get_by_label("E-mail address").fill("ada@example.org")
    page.get_by_label("Password").fill("password1")
    page.get_by_label("Name of your team").fill("Engines")
    page.get_by_role("button", name="Create the lab").click()
    expect(page.get_by_text("too common")).to_be_visible()
    expect(page.get_by_label("Name of your team")).to_have_value("Engines")
    page.get_by_label("Password").fill("a long enough secret")
    page.get_by_role("button", name="Create the lab").click()
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    expect(page.get_by_text("Welcome, Ada Byron")).to_be_visible()

    page.get_by_text("Engines").first.click()
    page.get_by_role("button", name="Sign out").click()
    page.goto("/runs/")
    page.get_by_label("Email").fill("ada@example.org")
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


def test_keys_work_and_are_listed_but_not_while_typing(page: Page, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys on this page")).to_contain_text("Launch a run")
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
  const parse = (text) => { const c = text.match(/[\\d.]+/g).map(Number); return text.startsWith("color(") ? c.slice(0, 3).map((v) => v * 255) : c.slice(0, 3); };
  const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => { const [x, y] = [light(parse(a)), light(parse(b))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const found = {};
  for (const text of ["--text", "--muted", "--accent", "--good", "--bad", "--warn", "--info"]) for (const ground of ["--bg", "--surface", "--surface-2"]) found[`${text} on ${ground}`] = ratio(token(text), token(ground)) / 4.5;
  found["--accent-ink on --accent"] = ratio(token("--accent-ink"), token("--accent")) / 4.5;
  for (const line of ["--border-strong", "--focus", ...Array.from({ length: 8 }, (_, i) => `--series-${i + 1}`)]) found[`${line} on --surface`] = ratio(token(line), token("--surface")) / 3;
  for (const chip of document.querySelectorAll(".chip")) found[`chip ${chip.dataset.status}`] = ratio(getComputedStyle(chip).color, getComputedStyle(chip).backgroundColor) / 4.5;
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
        for path in ("/runs/", "/launch/", "/launch/grpo/", "/launch/demo/", "/workers/", "/accounts/password/change/", "/nothing/"):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} at {width}"
