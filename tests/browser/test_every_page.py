"""Every page as people with other eyes, hands and screens meet it: axe-core finds nothing in either theme, nothing is cut at three widths."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Page

from lab.lib.npm_packages import packages_folder, read_lock
from lab.teams.accounts.models import Team, User
from tests.browser.conftest import until
from tests.browser.test_hostile import html_pages
from tests.lab.cast import make_cast
from tests.lab.supervisor.spools import steps

AXE = next(package for package in read_lock(Path(settings.BASE) / "npm-test.lock") if package.name == "axe-core")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]  # all that another theme can change
FIND = """async (runOnly) => (await axe.run(document, { runOnly, resultTypes: ["violations"], preload: false })).violations
  .flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")} ${node.html.slice(0, 100)}`))"""
WIDTHS = (1440, 1280, 390)
PATIENCE = 2.0  # seconds
CUT = """() => {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) {
    const widest = [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1).at(-1);
    found.push(`the page: ${document.documentElement.scrollWidth} of ${innerWidth}, ${widest?.outerHTML.slice(0, 120)}`);
  }
  if (innerWidth < 1000) return found;
  for (const table of document.querySelectorAll("main table")) {
    const wrap = table.parentElement;
    if (table.checkVisibility() && wrap.scrollWidth > wrap.clientWidth + 1) found.push(`a table: ${wrap.scrollWidth} of ${wrap.clientWidth}`);
  }
  return found;
}"""


def find_violations(page: Page) -> list[str]:
    page.emulate_media(color_scheme="light")
    found = page.evaluate(FIND, {"type": "tag", "values": RULES})
    page.emulate_media(color_scheme="dark")
    return [*found, *(f"dark, {one}" for one in page.evaluate(FIND, {"type": "rule", "values": OF_COLOURS}))]


def find_cuts(page: Page) -> list[str]:
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        deadline = time.monotonic() + PATIENCE
        while (cuts := page.evaluate(CUT)) and time.monotonic() < deadline:  # a chart follows its page a moment later
            page.wait_for_timeout(100)
        found += [f"at {width} px, {one}" for one in cuts]
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    return found


@pytest.mark.feature(89)
@pytest.mark.timeout(900)
def test_every_page_can_be_seen_read_and_used(page: Page, sign_in: Callable[[User], None], team: Team, owner: User) -> None:
    sign_in(owner)
    page.add_init_script(path=packages_folder() / AXE.served_name)
    cast = make_cast(team, owner, "mark", steps(2, 3))
    trouble: dict[str, list[str]] = {}
    for name, path, body in html_pages(cast, owner):
        if b"<html" not in body[:2000]:
            continue  # a part of a page
        page.goto(path)
        page.wait_for_timeout(200)  # lists and charts come by themselves
        until(page, "!document.querySelector('.htmx-request')")
        if found := [*find_violations(page), *find_cuts(page)]:
            trouble[f"{name} {path}"] = found
    assert not trouble, "\n".join(f"{page}\n  " + "\n  ".join(found) for page, found in trouble.items())
