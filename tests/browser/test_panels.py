"""The charts that methods declare, drawn in a browser from stored metrics and live, whatever kind they are."""

import copy
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.conftest import until
from tests.browser.training import add, click_chart, drawn_steps, expect_complete, open_overview
from tests.lab.supervisor.spools import make_run, measured, rollout, started
from trainers.contract.events import AnyEvent

BINS = 20
HOSTILE = "<img src=x onerror=alert(1)>"


def series(*names: str, dashed: bool = False) -> list[dict[str, Any]]:
    return [{"metric": name, "label": "", "dashed": dashed} for name in names]


PANEL = {"unit": "", "help": "", "band": None, "phase": "", "phase_names": [], "low": None, "high": None}
PANELS = [
    {**PANEL, "kind": "lines", "title": "Entropy and its band", "series": series("entropy"), "band": ["probe/low", "probe/high"]},
    {**PANEL, "kind": "stack", "title": "Shares", "series": series("probe/right", "probe/wrong")},
    {**PANEL, "kind": "histogram", "title": "Weights", "series": series("probe/weights"), "low": 0.0, "high": 2.0},
    {**PANEL, "kind": "phases", "title": "Likelihood", "series": series("probe/chosen"), "phase": "probe/phase", "phase_names": ["warm-up", HOSTILE]},
]
SPEC = {"recipe": "grpo", "training": {"trainer": "grpo"}, "base": {"name": "dr-grpo"}, "methods": [{"name": "probe"}]}


@pytest.fixture
def probe() -> Iterator[None]:
    """A method with a panel of each kind in the catalogue of this installation."""
    data = json.loads((Path(settings.BASE) / "trainers/catalog.json").read_text())
    made = copy.deepcopy(next(method for method in data["methods"] if method["name"] == "rs-grpo"))
    data["methods"].append({**made, "name": "probe", "title": f"Probe {HOSTILE}", "idea": "Draws one of each.", "panels": PANELS})
    path = Path(settings.HOME) / "catalog.json"
    path.write_text(json.dumps(data))
    yield
    path.unlink()


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None], probe: None) -> Run:
    sign_in(owner)
    return make_run(team, status=Status.RUNNING, owner="w/1", spec=SPEC)


def logged(first: int, last: int) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for step in range(first, last + 1):
        weights = {f"probe/weights/{place:02d}": math.exp(-(((place - step / 4) / 3) ** 2)) / 5.3 for place in range(BINS)}
        shares = {"probe/right": step / 40, "probe/wrong": 1 - step / 40}
        band = {"entropy": 1.0 + 0.1 * math.sin(step / 3), "probe/low": 0.8, "probe/high": 1.2}
        phases = {"probe/chosen": -1.0 / step, "probe/phase": float(step > 10), "probe/undeclared": 1.0}
        events.append(measured(step, values={"reward": 0.01 * step, **weights, **shares, **band, **phases}))
    return events


def plotted(page: Page, panel: str) -> Any:
    return page.evaluate("id => document.querySelector(`[data-panel='method-probe-${id}'] .chart-plot`).data", panel)


def shapes(page: Page) -> list[tuple[float, float]]:
    found = page.evaluate("document.querySelector('[data-panel=method-probe-3] .chart-plot').layout.shapes")
    return [(shape["x0"], shape["x1"]) for shape in found if shape["type"] == "rect"]


def wait_for_step(page: Page, panel: str, step: int) -> None:
    script = "([id, step]) => document.querySelector(`[data-panel='${id}'] .chart-plot`).data?.some((one) => one.x.at(-1) === step)"
    page.locator(f"[data-panel='{panel}']").scroll_into_view_if_needed()
    until(page, script, arg=[panel, step])


def test_every_kind_is_drawn_from_stored_metrics_and_goes_on_live(page: Page, run: Run) -> None:
    add(run, [started(total_steps=40), *logged(1, 20)])
    open_overview(page, run)
    expect(page.get_by_role("heading", name="Probe <img")).to_have_text(f"Probe {HOSTILE}")
    for panel in range(4):
        wait_for_step(page, f"method-probe-{panel}", 20)
    low, high, entropy = plotted(page, "0")
    assert (low["y"][0], high["y"][0], high["fill"]) == (0.8, 1.2, "tonexty")
    assert entropy["x"] == list(range(1, 21))
    assert {one["stackgroup"] for one in plotted(page, "1")} == {"one"}
    heat, median = plotted(page, "2")
    assert (heat["type"], len(heat["z"]), len(heat["z"][0])) == ("heatmap", BINS, 20)
    assert heat["y"][0] == pytest.approx(0.05)
    assert median["y"][-1] == pytest.approx(0.55)  # bin 5 of [0, 2]
    assert shapes(page) == [(1, 11), (11, 20)]
    add(run, logged(21, 25))
    expect_complete(page, run)
    for panel in range(4):
        wait_for_step(page, f"method-probe-{panel}", 25)
    assert shapes(page)[-1] == (11, 25)
    assert drawn_steps(page, "entropy") == list(range(1, 26))  # the general chart has the metric too


def test_panels_wait_for_the_first_step_and_fill_without_a_reload(page: Page, run: Run) -> None:
    page.goto(f"/runs/{run.pk}/")
    expect(page.get_by_text("appears after the first step")).to_have_count(4)
    page.evaluate("window.loadedOnce = true")
    add(run, [started(total_steps=40), *logged(1, 3)])
    expect(page.get_by_text("appears after the first step")).to_have_count(0)
    expect(page.locator("[data-panel=reward]")).to_be_visible()
    expect_complete(page, run)
    assert page.evaluate("window.loadedOnce") is True


def test_hovering_one_chart_reads_all_of_them_at_that_step(page: Page, run: Run) -> None:
    add(run, [started(total_steps=40), *logged(1, 20)])
    open_overview(page, run)
    wait_for_step(page, "method-probe-3", 20)
    phases = page.locator("[data-panel='method-probe-3']")
    expect(phases.locator(".legend-entry.now")).to_have_text(HOSTILE)
    box = phases.locator(".nsewdrag").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    expect(phases.locator(".legend-entry.now")).to_have_text("warm-up")
    expect(page.locator("[data-panel='method-probe-0'] .legend-entry.still")).to_contain_text("0.800 to 1.20")


def test_what_a_method_logs_beyond_its_panels_is_folded_away_and_not_among_the_others(page: Page, run: Run) -> None:
    add(run, [started(total_steps=40), *logged(1, 5)])
    open_overview(page, run)
    more = page.locator("section[data-section='method:probe+']")
    expect(more.get_by_text("More of probe")).to_be_visible()
    expect(more.locator("figure")).to_be_hidden()
    more.get_by_text("More of probe").click()
    expect(more.locator("figure .legend-label")).to_have_text("undeclared")
    expect(page.locator("section[data-section='Other+']")).to_have_count(0)


def test_a_panel_that_a_run_never_filled_says_so(page: Page, run: Run) -> None:
    add(run, [started(), measured(1)])
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED, owner="")
    page.goto(f"/runs/{run.pk}/")
    expect(page.get_by_text("not logged in this run")).to_have_count(4)


@pytest.mark.parametrize("panel", [0, 1, 2, 3])
def test_a_click_on_a_panel_of_any_kind_opens_the_rollouts_of_its_step(panel: int, page: Page, run: Run) -> None:
    add(run, [started(total_steps=40), *logged(1, 20), *(rollout(step) for step in range(1, 21))])
    open_overview(page, run)
    wait_for_step(page, f"method-probe-{panel}", 20)
    click_chart(page, f"method-probe-{panel}", 0.5, height=0.4)
    expect(page.locator("#step-feed [data-rollout]")).to_have_count(1)
    assert 9 <= int(page.locator("#step-feed").get_attribute("data-step") or 0) <= 12
