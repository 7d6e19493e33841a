"""Reports in a browser: written with the Insert dialog, kept as a draft, a chart that grows with its run, and a file that needs no network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs import live, metrics, publisher
from lab.training.runs.models import Attempt, Run, Status
from lab.watching.reports.models import Report
from lab.watching.reports.smoothing import is_noisy, smooth_values
from tests.browser.conftest import of_module, until
from tests.lab.supervisor.spools import make_run

DRAWN = "document.querySelector('#report .chart-plot').data"


def log_points(run: Run, first: int, last: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        metrics.append_metric_points(cursor, run.pk, 1, {"reward": [(step, step / 10) for step in range(first, last + 1)]})


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    sign_in(owner)
    made = make_run(team, name="followed", status=Status.RUNNING, step=20, total_steps=40, started_at=timezone.now())
    Attempt.objects.create(run=made, number=1, from_step=0, host="h", device="cpu", started_at=timezone.now())
    log_points(made, 1, 20)
    return made


@pytest.mark.feature(31)
def test_a_report_is_written_follows_its_run_and_leaves_as_one_file(page: Page, context: BrowserContext, run: Run, tmp_path: Path) -> None:
    page.goto("/reports/new/")
    page.get_by_label("Title").fill("What it does")
    text = page.get_by_label("Text Markdown")
    text.fill("It **rises**.\n\n```chart\nruns: 1\n```")
    expect(page.locator("#preview")).to_contain_text("Line 3: a chart block needs a line “metric: …”.")
    expect(page.locator("#save-state")).to_have_text("Unsaved changes")
    until(page, "() => Object.keys(localStorage).some((key) => key.startsWith('lab-report-') && localStorage[key].includes('It **rises**'))")
    leaving = "() => { const event = new Event('beforeunload', { cancelable: true }); window.dispatchEvent(event); return event.defaultPrevented; }"
    assert page.evaluate(leaving) is True
    again = context.new_page()
    again.goto("/reports/new/")
    again.get_by_role("button", name="Restore draft").click()
    expect(again.get_by_label("Title")).to_have_value("What it does")
    again.close(run_before_unload=False)
    text.fill("It **rises**.\n")
    page.get_by_role("button", name="Insert…").click()
    page.get_by_role("checkbox", name="#1 followed").check()
    expect(page.get_by_label("Metric")).to_have_value("reward")
    page.get_by_role("button", name="Insert", exact=True).click()
    expect(text).to_have_value("It **rises**.\n\n```chart\nruns: 1\nmetric: reward\n```\n")
    until(page, "() => document.querySelector('#preview .chart-plot').data[0].x.length === 20")
    page.keyboard.press("Control+s")
    page.wait_for_url("**/reports/*/edit/")
    text.press("Control+End")
    text.type("So far.")
    page.keyboard.press("Control+s")
    expect(page.locator("#save-state")).to_have_text("Saved as version 2.")
    page.get_by_role("link", name="Close").click()
    expect(page.get_by_role("heading", name="What it does")).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    until(page, f"() => {DRAWN}[0].x.length === 20")
    log_points(run, 21, 25)
    Run.across_teams.filter(pk=run.pk).update(step=25)
    run.refresh_from_db()
    live.publish_state(run)
    publisher.flush_messages()
    until(page, f"() => {DRAWN}[0].x.length === 25")
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("link", name="HTML file, all in one").click()
    file = tmp_path / "report.html"
    download.value.save_as(file)
    alone, asked = context.new_page(), list[str]()
    alone.on("request", lambda request: asked.append(request.url))
    alone.goto(file.as_uri())
    expect(alone.get_by_role("img", name="Reward by step")).to_be_visible()
    expect(alone.get_by_role("row", name="#1 followed")).to_contain_text("2.50 at step 25")
    assert asked == [file.as_uri()]
    alone.close()
    assert Report.across_teams.get().number == 2


def test_the_file_smooths_as_the_pages_do(page: Page, run: Run) -> None:
    page.goto("/reports/")
    steps = [1, 2, 3, 5, 8, 20, 21, 22, 23, 24, 25, 26]
    values: list[Any] = [0.1, 0.9, None, 0.2, 0.8, 0.1, 0.7, 0.3, 0.9, 0.2, 0.8, 0.4]
    smoothed = page.evaluate(of_module("charts/series.js", f"module.smoothSeries({steps}, {str(values).replace('None', 'NaN')}, 0.6)"))
    assert smooth_values(steps, values, 0.6) == [None if value is None else pytest.approx(value) for value in smoothed]
    for line in (values, [step / 10 for step in steps]):
        assert is_noisy(line) is page.evaluate(of_module("charts/smoothing.js", f"module.isNoisy({str(line).replace('None', 'NaN')})"))
