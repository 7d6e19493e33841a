"""What people with other eyes, hands and screens meet on a page: axe-core in both themes, and what is cut at three widths."""

from __future__ import annotations

import time
from pathlib import Path

from django.conf import settings
from playwright.sync_api import Page

from lab.lib.npm_packages import packages_folder, read_lock

AXE = next(package for package in read_lock(Path(settings.BASE) / "npm-test.lock") if package.name == "axe-core")
AXE_SCRIPT = packages_folder() / AXE.served_name  # defines axe in a page that it is added to
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
