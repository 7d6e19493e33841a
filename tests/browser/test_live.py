"""An open run page while everything around it moves, breaks and comes back: complete, without a duplicate, without a reload."""

import json
import re
from collections.abc import Callable

import pytest
import redis
from django.conf import settings
from playwright.sync_api import BrowserContext, Page, WebSocket, WebSocketRoute, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.conftest import WebProcess, until
from tests.browser.training import add, drawn_steps, expect_complete, open_overview, running
from tests.lab.supervisor.spools import make_run, measured, started, steps


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    sign_in(owner)
    return running(team)


@pytest.mark.feature(15)
def test_charts_move_while_rows_are_ingested(page: Page, run: Run) -> None:
    open_overview(page, run)
    for step in range(4, 13):
        add(run, steps(step, step))
    expect_complete(page, run)
    expect(page.locator("[data-live=step]")).to_have_text("12")
    expect(page.locator("[data-panel=reward] .legend-value")).to_have_text("1.20")
    until(page, "document.querySelector('[data-panel=reward] .chart-plot').data[0].x.at(-1) === 12")
    assert drawn_steps(page, "reward") == list(range(1, 13))


def test_the_first_points_appear_on_a_page_that_was_empty(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    run = make_run(team, status=Status.RUNNING)
    page.goto(f"/runs/{run.pk}/")
    expect(page.get_by_role("heading", name="Getting ready")).to_be_visible()
    page.evaluate("window.loadedOnce = true")
    add(run, [started(), *steps(1, 2)])
    expect(page.locator("figure.chart")).to_have_count(2)
    expect(page.get_by_role("heading", name="Getting ready")).to_be_hidden()
    expect(page.get_by_role("heading", name="No metrics yet")).to_be_hidden()
    add(run, [measured(3, values={"reward": 0.3, "loss": 0.2, "a/new/metric": 1.0})])
    expect(page.locator("[data-panel=other-0]")).to_have_count(1)
    expect_complete(page, run)


@pytest.mark.feature(17)
def test_a_restarted_web_process_leaves_no_gap_and_no_duplicate(page: Page, run: Run, web: WebProcess) -> None:
    open_overview(page, run)
    add(run, steps(4, 6))
    expect_complete(page, run)
    web.stop()
    expect(page.locator("#live-badge")).to_have_text("reconnecting")
    for step in range(7, 20):
        add(run, steps(step, step))
    web.start()
    for step in range(20, 24):
        add(run, steps(step, step))
    expect(page.locator("#live-badge")).to_have_text("live", timeout=20_000)
    add(run, steps(24, 25))
    expect_complete(page, run)


@pytest.mark.feature(17)
def test_a_flushed_redis_costs_no_point(page: Page, run: Run) -> None:
    open_overview(page, run)
    client = redis.Redis.from_url(settings.REDIS_URL)
    for step in range(4, 16):
        add(run, steps(step, step))
        if step == 8:
            client.flushall()
        if step == 11:
            client.client_kill_filter(_type="pubsub")
    client.close()
    expect_complete(page, run)
    add(run, steps(16, 18))
    expect_complete(page, run)


@pytest.mark.feature(17)
def test_a_gap_right_after_a_hello_is_asked_for_once_the_page_may_ask_again(page: Page, run: Run) -> None:
    """Nothing else comes: the run may have ended with what the page did not take."""
    broken = list[int]()

    def break_twice(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def hand_on(text: str | bytes) -> None:
            message = json.loads(text)
            if message["type"] == "delta" and len(broken) < 2:
                broken.append(message["to"])
                message["from"] -= 1
            socket.send(json.dumps(message))

        server.on_message(hand_on)

    page.route_web_socket(re.compile("/ws/runs/"), break_twice)
    open_overview(page, run)
    add(run, steps(4, 6))
    expect_complete(page, run)
    assert len(broken) == 2


@pytest.mark.feature(14)
def test_a_page_that_was_offline_catches_up(page: Page, context: BrowserContext, run: Run) -> None:
    open_overview(page, run)
    context.set_offline(True)
    add(run, steps(4, 9))
    page.wait_for_timeout(500)
    context.set_offline(False)
    page.evaluate("window.dispatchEvent(new Event('online'))")
    add(run, steps(10, 11))
    expect_complete(page, run)


@pytest.mark.feature(84)
def test_a_resumed_run_replaces_the_steps_that_were_replayed(page: Page, run: Run) -> None:
    open_overview(page, run)
    add(run, steps(4, 8))
    expect_complete(page, run)
    add(run, [started(attempt=2, from_step=5, total_steps=200), measured(6, attempt=2, values={"loss": 9.0, "reward": 9.0})])
    expect_complete(page, run)
    expect(page.locator("#run-head").get_by_text("attempt 2")).to_be_visible()
    assert page.locator("#marks-key").inner_text() == "resumed"


def test_values_that_are_not_finite_are_counted_and_not_drawn(page: Page, run: Run) -> None:
    open_overview(page, run)
    add(
        run,
        [
            measured(4, values={"reward": 0.4}, nonfinite={"loss": "nan"}),
            measured(5),
            measured(6, values={"reward": 0.6}, nonfinite={"loss": "inf"}),
            measured(7),
        ],
    )
    note, title = page.locator("[data-panel=loss] .chart-note"), page.locator("[data-panel=loss] .chart-title h3")
    expect(note).to_have_text("2 NaN or infinite")
    assert (note.bounding_box() or {})["y"] >= (title.bounding_box() or {})["y"] + 10  # below: beside the title it left that one letter
    until(page, "document.querySelector('[data-panel=loss] .chart-plot').data[0].y.length === 7")
    drawn = page.evaluate("document.querySelector('[data-panel=loss] .chart-plot').data[0].y")
    assert [value is None for value in drawn] == [False, False, False, True, False, True, False]


def test_the_status_follows_without_a_reload(page: Page, run: Run) -> None:
    open_overview(page, run)
    Run.across_teams.filter(pk=run.pk).update(status=Status.FAILED, reason="CUDA out of memory", owner="", lease_until=None)
    expect(page.locator("#run-head .chip")).to_have_text("failed", timeout=10_000)
    expect(page.get_by_text("CUDA out of memory")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()
    assert page.title().endswith("failed")


def test_somebody_who_leaves_the_team_is_told_and_not_reconnected(page: Page, run: Run, owner: User) -> None:
    sockets: list[WebSocket] = []
    page.on("websocket", lambda socket: sockets.append(socket))
    open_overview(page, run)
    owner.memberships.all().delete()
    expect(page.get_by_text("This run is no longer open to you.")).to_be_visible(timeout=10_000)
    expect(page.get_by_role("heading", name="This team is no longer open to you")).to_be_visible()
    expect(page.locator("#live-badge, [data-panel]")).to_have_count(0)  # nothing of the run is left
    opened = len(sockets)
    page.wait_for_timeout(4_000)  # longer than the pause before it would be tried again
    assert len(sockets) == opened
    assert all(socket.is_closed() for socket in sockets)
