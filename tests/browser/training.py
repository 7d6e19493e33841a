"""A run that moves while a page is open: events go through the spool and the product's own ingest, then the page is compared with the database."""

import math
import time
from typing import Any

from django.utils import timezone
from playwright.sync_api import Page, Position, expect

from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team
from lab.training.runs import metrics, publisher
from lab.training.runs.models import Run, Status
from tests.browser.conftest import of_module, until
from tests.lab.supervisor.spools import make_run, started, steps, write
from trainers.contract.events import AnyEvent

COMPLETE_SECONDS = 20


def running(team: Team, **fields: Any) -> Run:
    """A run in training with three steps done."""
    run = make_run(team, status=Status.RUNNING, owner="w/1", started_at=timezone.now(), progress_at=timezone.now(), **fields)
    add(run, [started(total_steps=200), *steps(1, 3)])
    return run


def add(run: Run, events: list[AnyEvent]) -> None:
    """Spool, database, wake-up: what a supervisor does with what its trainer wrote."""
    write(run.folder, events)
    run.refresh_from_db()
    while ingest_spool(run):
        pass
    publisher.flush_messages()


def open_overview(page: Page, run: Run) -> None:
    page.goto(f"/runs/{run.pk}/")
    expect(page.locator("#live-badge")).to_have_text("live")
    expect(page.locator("figure.chart .chart-plot .main-svg").first).to_be_visible()
    page.evaluate("window.loadedOnce = true")


def wait_for_status(page: Page, status: Status, milliseconds: float) -> None:
    """Waits on a run's page through a training. Not by ``expect``: each of its looks at what is not there yet describes the whole page, 50 ms."""
    page.locator(f"#run-head[data-status={status}]").wait_for(timeout=milliseconds)


def click_chart(page: Page, panel: str, share: float, height: float = 0.5) -> None:
    """A click into a chart, at a share of its width, once Plotly knows what is under the pointer: a busy machine may take a while to see that."""
    plot = page.locator(f"[data-panel='{panel}'] .nsewdrag")
    box = plot.bounding_box()
    assert box is not None
    at: Position = {"x": box["width"] * share, "y": box["height"] * height}
    plot.hover(position=at)  # like the click, once the chart has stopped moving
    until(page, "panel => (document.querySelector(`[data-panel='${panel}'] .chart-plot`)._hoverdata || []).length > 0", arg=panel)
    plot.click(position=at)


def points_of(page: Page) -> dict[str, dict[int, float]]:
    """Every point the page holds; a step that is there twice is an error."""
    points = "Object.fromEntries(Object.entries(module.overview.series).map(([name, one]) => [name, [one.steps, one.values]]))"
    series = page.evaluate(of_module("run/overview.js", points))
    for name, (steps_of, _) in series.items():
        assert steps_of == sorted(set(steps_of)), f"{name} has steps twice or out of order: {steps_of}"
    return {name: dict(zip(*one, strict=True)) for name, one in series.items()}


def stored(run: Run) -> dict[str, dict[int, float]]:
    return {
        name: dict(zip(one.steps.tolist(), one.values.tolist(), strict=True))
        for name, one in metrics.read_metric_series(run.pk).items()
        if not name.startswith("@")
    }


def same(one: dict[str, dict[int, float]], other: dict[str, dict[int, float]]) -> bool:
    def plain(points: dict[int, float]) -> dict[int, str]:
        return {step: "nan" if math.isnan(value) else repr(float(value)) for step, value in points.items()}

    return {name: plain(points) for name, points in one.items()} == {name: plain(points) for name, points in other.items()}


def expect_complete(page: Page, run: Run) -> None:
    """The page has every point of the database, each once, without having been loaded again."""
    deadline = time.monotonic() + COMPLETE_SECONDS
    wanted = stored(run)
    while not same(points_of(page), wanted):
        assert time.monotonic() < deadline, f"the page has {points_of(page)}, the database {wanted}"
        page.wait_for_timeout(100)
    assert page.evaluate("window.loadedOnce") is True


def drawn_steps(page: Page, panel: str) -> list[float]:
    """The x of the first line Plotly has drawn in a panel."""
    found: list[float] = page.evaluate("id => document.querySelector(`[data-panel='${id}'] .chart-plot`).data[0].x", panel)
    return found
