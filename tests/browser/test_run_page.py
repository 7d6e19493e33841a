"""A run's page in a browser: the charts' settings, the actions, the logs, and hostile text through every door."""

import csv
import io
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs import live
from lab.training.runs.models import Attempt, LogChunk, Run, Status
from tests.browser.conftest import of_module, until
from tests.browser.training import add, drawn_steps, open_overview, running
from tests.lab.supervisor.spools import make_run, measured, started, steps
from trainers.contract.events import Warned

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)><b>bold</b>\u202eevil\u202c\u200b&lt;"


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    sign_in(owner)
    run = running(team)
    add(run, steps(4, 40))
    return run


@pytest.mark.feature(20)
def test_smoothing_keeps_the_raw_line_faint_and_starts_at_the_first_value(page: Page, run: Run) -> None:
    open_overview(page, run)
    page.get_by_label("Smoothing, 0 to 0.999").fill("0.9")
    until(page, "document.querySelector('[data-panel=loss] .chart-plot').data.length === 2")
    raw, smooth = page.evaluate("document.querySelector('[data-panel=loss] .chart-plot').data.map((one) => ({ y: one.y, opacity: one.opacity }))")
    assert raw["opacity"] < 0.5
    assert smooth["y"][0] == raw["y"][0]
    expected, weight = 0.0, 0.0
    for value in raw["y"]:
        expected, weight = expected * 0.9 + value, weight * 0.9 + 1
    assert smooth["y"][-1] == pytest.approx(expected / weight)


def test_a_noisy_reward_is_smoothed_until_somebody_chooses_and_its_total_lies_on_top(page: Page, run: Run) -> None:
    values = [{"reward": 0.5 + 0.2 * (step % 2), "rewards/correct/mean": 0.5 + 0.2 * (step % 2), "rewards/format/mean": 1.0} for step in range(60)]
    add(run, [measured(41 + place, values={**one, "loss": 0.01}) for place, one in enumerate(values)])
    Run.across_teams.filter(pk=run.pk).update(spec={"recipe": "grpo", "task": {"name": "mini_gsm"}})
    open_overview(page, run)
    data = "document.querySelector('[data-panel=reward] .chart-plot').data.map((one) => [one.meta, one.visible, one.line.width, one.opacity])"
    drawn = page.evaluate(data)
    assert [one[0] for one in drawn] == ["", "", "", "correct", "format (weight 0)", "total"]
    assert [one[1] for one in drawn[3:]] == [True, False, True]
    assert drawn[5][2] > drawn[3][2]
    assert all(one[3] < 0.5 for one in drawn[:3])
    expect(page.locator("[data-panel=reward] .legend-said")).to_have_text("at step 100, lines smoothed 0.6")
    expect(page.locator("[data-panel=loss] .legend-said")).to_have_text("at step 100")
    page.get_by_role("button", name="format (weight 0)").click()
    until(page, f"{data}.every((one) => one[1])")
    page.get_by_label("Smoothing, 0 to 0.999").fill("0.3")
    open_overview(page, run)
    expect(page.locator("[data-panel=loss] .legend-said")).to_have_text("at step 100, lines smoothed 0.3")
    page.get_by_role("button", name="Auto").click()
    expect(page.locator("[data-panel=loss] .legend-said")).to_have_text("at step 100")


def test_the_header_leaves_the_screen_to_the_charts(page: Page, run: Run) -> None:
    first = make_run(run.team, name="cold start", status=Status.FINISHED)
    Run.across_teams.filter(pk=run.pk).update(name="a run whose name is rather long " * 3, parent=first, created_by=run.team.memberships.get().user)
    page.set_viewport_size({"width": 1440, "height": 720})
    open_overview(page, run)
    until(page, "document.querySelector('#doctor .doctor-line, #doctor .doctor-panel') !== null")
    top, findings = (page.locator(place).bounding_box() for place in ("[data-panel=reward]", "#doctor"))
    assert top
    assert findings
    assert top["y"] - findings["height"] < 320
    assert page.locator("#run-head").bounding_box()["height"] < 70  # type: ignore[index]
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(200)
    assert page.locator("#run-head").bounding_box()["height"] <= 844 / 4  # type: ignore[index]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.feature(20)
def test_the_average_fades_over_a_gap_as_if_its_points_had_been_there(page: Page, run: Run) -> None:
    open_overview(page, run)
    found = page.evaluate(of_module("charts/series.js", "module.smoothSeries([1, 2, 3, 13], [1, 1, 1, 5], 0.5)"))
    past = (1 + 0.5 + 0.25) * 0.5**10
    assert found[3] == pytest.approx((past * 1 + 5) / (past + 1))
    assert page.evaluate(of_module("charts/series.js", "module.smoothSeries([1, 2, 3], [NaN, 2, NaN], 0.9)")) == [None, 2, None]


def test_missing_steps_break_the_line(page: Page, run: Run) -> None:
    add(run, steps(60, 62))
    open_overview(page, run)
    drawn = page.evaluate("document.querySelector('[data-panel=reward] .chart-plot').data[0].y")
    assert drawn.index(None) == 40
    assert len(drawn) == 44


@pytest.mark.feature(22)
def test_zooming_one_chart_zooms_all_and_the_address_keeps_every_setting(page: Page, run: Run) -> None:
    open_overview(page, run)
    plot = page.locator("[data-panel=reward] .nsewdrag")
    box = plot.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, y, steps=5)
    page.mouse.up()
    ranges = "[...document.querySelectorAll('.chart-plot.js-plotly-plot')].map((one) => one.layout.xaxis.range.map(Math.round))"
    until(page, f"JSON.stringify({ranges}) === '[[10,30],[10,30]]' || JSON.stringify({ranges}) === '[[11,30],[11,30]]'")
    page.locator("summary", has_text="Axes").click()
    page.get_by_label("Log y").check()
    page.get_by_label("Smoothing, 0 to 0.999").fill("0.5")
    address = page.evaluate("location.href")
    assert "zoom=" in address
    assert "log=1" in address
    assert "smooth=0.5" in address
    page.goto(address)
    until(page, f"JSON.stringify({ranges}).startsWith('[[1')")
    assert page.locator("#log-y").is_checked()
    expect(page.locator("#axes-changed")).to_have_text("1")
    page.get_by_role("button", name="Reset zoom").click()
    until(page, f"JSON.stringify({ranges}) !== '' && {ranges}.every((one) => one[0] <= 1 && one[1] >= 40)")
    assert "zoom" not in page.evaluate("location.href")


@pytest.mark.feature(22)
def test_a_slanting_drag_takes_a_range_of_y_of_that_chart_alone(page: Page, run: Run) -> None:
    open_overview(page, run)
    box = page.locator("[data-panel=reward] .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.25)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.75, steps=5)
    page.mouse.up()
    ranges = "(axis) => ['reward', 'loss'].map((id) => document.querySelector(`[data-panel=${id}] .chart-plot`).layout[axis].range)"
    until(page, "location.search.includes('zoom=') && location.search.includes('y=reward')")
    page.goto(page.url)
    until(page, f"({ranges.replace('.layout', '?.layout?.').replace('.range', '?.range')})('xaxis').every(Boolean)")
    (left, _), other = page.evaluate(f"({ranges})('xaxis')")
    assert [left, _] == other
    assert 9 < left < 12
    kept, whole = page.evaluate(f"({ranges})('yaxis')")
    page.get_by_role("button", name="Reset zoom").click()
    until(page, "!location.search.includes('y=') && !location.search.includes('zoom=')")
    until(page, f"([low, high]) => {{ const [wide] = ({ranges})('yaxis'); return wide[0] < low && high < wide[1]; }}", arg=kept)
    until(page, f"(whole) => {{ const [, same] = ({ranges})('yaxis'); return same[0] <= whole[0] && whole[1] <= same[1]; }}", arg=whole)


@pytest.mark.feature(23)
def test_hovering_one_chart_shows_the_values_of_that_step_in_all(page: Page, run: Run) -> None:
    open_overview(page, run)
    box = page.locator("[data-panel=reward] .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    until(page, "document.querySelectorAll('.chart-cross:not([hidden])').length === 2")
    shown = {name: page.locator(f"[data-panel={name}] .legend-value").inner_text() for name in ("reward", "loss")}
    step = round(float(shown["reward"]) * 10)
    assert 15 <= step <= 26
    assert float(shown["loss"]) == pytest.approx(1 / (step + 1), abs=6e-4)


@pytest.mark.feature(21)
@pytest.mark.parametrize(("axis", "last"), [("time", 39 / 60), ("tokens", 4000)])
def test_other_axes_place_the_same_points(axis: str, last: float, page: Page, run: Run) -> None:
    open_overview(page, run)
    page.get_by_role("button", name=axis.capitalize(), exact=True).click()
    until(
        page,
        "axis => document.querySelector('[data-panel=reward] .chart-plot').layout.xaxis.title.text === axis",
        arg={"time": "minutes"}.get(axis, axis),
    )
    drawn = drawn_steps(page, "reward")
    assert len(drawn) == 40
    assert drawn[-1] == pytest.approx(last)


@pytest.mark.feature(21, 22)
def test_samples_log_axes_and_outliers_are_in_the_address(page: Page, run: Run) -> None:
    spec = {"training": {"trainer": "grpo", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}}
    Run.across_teams.filter(pk=run.pk).update(spec=spec)
    add(run, [measured(41, values={"reward": 0.5, "loss": 900.0})])
    open_overview(page, run)
    plot = "document.querySelector('[data-panel=loss] .chart-plot')"
    page.get_by_role("button", name="Samples", exact=True).click()
    until(page, f"{plot}.layout.xaxis.title.text === 'completions'")
    assert drawn_steps(page, "loss")[-1] == 41 * 16
    page.locator("summary", has_text="Axes").click()
    page.get_by_label("Log x").check()
    until(page, f"{plot}.layout.xaxis.type === 'log'")
    assert page.evaluate(f"10 ** {plot}.layout.xaxis.range[0]") == pytest.approx(16)
    assert page.evaluate(f"{plot}.layout.yaxis.range[1]") > 900
    page.get_by_label("Ignore outliers").check()
    until(page, f"{plot}.layout.yaxis.range[1] < 10")
    assert max(page.evaluate(f"{plot}.data[0].y")) == 900  # it is still drawn, beyond the edge
    page.locator("[data-panel=loss] .chart-area").focus()
    page.keyboard.press("End")
    until(page, "!document.querySelector('[data-panel=loss] .chart-pin').hidden")
    page.goto(page.url)
    until(page, f"{plot}?.layout?.xaxis.type === 'log' && {plot}.layout.yaxis.range[1] < 10")
    expect(page.get_by_role("button", name="Samples", exact=True)).to_have_attribute("aria-pressed", "true")


def test_a_chart_has_a_table_a_picture_and_a_file(page: Page, run: Run, tmp_path: Path) -> None:
    open_overview(page, run)
    page.get_by_role("button", name="Table of Loss").click()
    rows = page.locator("[data-panel=loss] tbody tr")
    expect(rows).to_have_count(40)
    assert rows.first.inner_text().split() == ["40", "0.024"]
    with page.expect_download() as picture:
        page.get_by_role("button", name="Save Loss as PNG").click()
    assert picture.value.suggested_filename == "loss.png"
    assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as file:
        page.get_by_role("link", name="Loss as CSV").click()
    rows_of = list(csv.reader(io.StringIO(Path(file.value.path()).read_text())))
    assert rows_of[0] == ["step", "time", "tokens", "loss"]
    assert len(rows_of) == 41


def test_a_charts_table_has_every_step_and_moves_nothing(page: Page, run: Run) -> None:
    add(run, [measured(step) for step in range(41, 151)])
    open_overview(page, run)
    places = "[...document.querySelectorAll('figure.chart')].map((one) => [one.offsetTop, one.offsetHeight])"
    before = page.evaluate(places)
    page.get_by_role("button", name="Table of Reward").click()
    steps_of = page.locator("[data-panel=reward] tbody th").all_inner_texts()
    assert [int(step) for step in steps_of] == list(range(150, 0, -1))
    assert page.evaluate(places) == before


@pytest.mark.feature(82)
def test_package_names_and_versions_stand_apart(page: Page, run: Run) -> None:
    names = {"trl": "1.16.0", "a-package-with-a-long-name": "1.2.3.dev4+gabcdef0123456", "torch": "2.9.0+cpu", "transformers": "5.1.0"}
    Attempt.objects.filter(run=run).update(versions=names)
    page.goto(f"/runs/{run.pk}/config/")
    texts = page.evaluate("""[...document.querySelectorAll('.versions :is(dt, dd)')].map((one) => {
        const range = document.createRange(); range.selectNodeContents(one);
        const { left, right, top } = range.getBoundingClientRect(); return { left, right, top }; })""")
    assert len(texts) == 8
    for one, other in itertools.combinations(texts, 2):
        if abs(one["top"] - other["top"]) < 5:
            left, right = sorted((one, other), key=lambda text: float(text["left"]))
            assert right["left"] - left["right"] >= 8


def test_a_chart_fills_the_screen_and_arrows_go_to_the_next(page: Page, run: Run) -> None:
    open_overview(page, run)
    page.get_by_role("button", name="Full screen: Reward").click()
    expect(page.locator(".chart-full")).to_have_attribute("data-panel", "reward")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".chart-full")).to_have_attribute("data-panel", "loss")
    page.keyboard.press("Escape")
    expect(page.locator(".chart-full")).to_have_count(0)


def test_a_line_is_redrawn_in_the_other_theme(page: Page, run: Run) -> None:
    open_overview(page, run)
    colour = "document.querySelector('[data-panel=reward] .chart-plot').data[0].line.color"
    page.emulate_media(color_scheme="light")
    before = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    until(page, f"{colour} !== {before!r}")


def test_killing_asks_first_and_still_acts_when_the_header_was_renewed_meanwhile(page: Page, run: Run) -> None:
    open_overview(page, run)
    page.get_by_role("button", name="Kill").click()
    page.locator("#confirm-dialog").get_by_role("button", name="Cancel").click()
    run.refresh_from_db()
    assert run.status == Status.RUNNING
    page.locator("#run-head").get_by_role("button", name="Kill").click()
    run.request_stop()
    live.publish_state(run)
    expect(page.locator("#run-head .chip")).to_have_text("stopping")
    page.locator("#confirm-dialog").get_by_role("button", name="Kill").click()
    expect(page.get_by_text("Killing the trainer without saving.")).to_be_visible()
    run.refresh_from_db()
    assert run.kill_requested


def test_stopping_asks_nothing_and_shows_at_once(page: Page, run: Run) -> None:
    open_overview(page, run)
    page.get_by_role("button", name="Stop and save").click()
    expect(page.locator("#run-head .chip")).to_have_text("stopping")
    expect(page.get_by_text("Stopping: the run finishes its step and saves a checkpoint.")).to_be_visible()
    run.refresh_from_db()
    assert run.status == Status.STOPPING
    page.locator("#run-head").get_by_label("More actions").click()  # what cannot be done now is in the menu, with the reason
    expect(page.get_by_role("button", name="Stop and save")).to_have_attribute("aria-disabled", "true")
    expect(page.get_by_text("It is already stopping.")).to_be_visible()
    assert page.evaluate("window.loadedOnce") is True


def test_actions_work_without_scripts(without_scripts: Page, team: Team) -> None:
    run = make_run(team, status=Status.FAILED)
    without_scripts.goto(f"/runs/{run.pk}/")
    without_scripts.get_by_role("button", name="Resume").click()
    expect(without_scripts.get_by_text("Queued again")).to_be_visible()
    run.refresh_from_db()
    assert run.status == Status.QUEUED


@pytest.mark.feature(19)
def test_the_log_follows_its_end_until_one_scrolls_up(page: Page, run: Run) -> None:
    def printed(text: str) -> None:
        offset = sum(len(one.encode()) for one in LogChunk.objects.filter(run=run, notice=False).values_list("text", flat=True))
        LogChunk.objects.create(run=run, attempt=1, offset=offset, text=text)
        Run.across_teams.filter(pk=run.pk).update(log_ingested=offset + len(text.encode()))
        add(run, steps(run.step + 1, run.step + 1))

    printed("".join(f"line {index}\n" for index in range(100)) + "loading 10%")
    page.goto(f"/runs/{run.pk}/logs/")
    expect(page.locator("#live-badge")).to_have_text("live")
    lines = page.locator(".log-line")
    expect(lines).to_have_count(101)
    printed("\rloading 100%\nline of the end\n")
    expect(lines).to_have_count(102, timeout=10_000)
    assert lines.nth(100).inner_text() == "loading 100%"
    assert page.evaluate("(() => { const log = document.getElementById('log'); return log.scrollHeight - log.scrollTop - log.clientHeight < 5; })()")
    page.evaluate("document.getElementById('log').scrollTop = 0")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    printed("one more\n")
    expect(page.get_by_role("button", name="New lines")).to_be_visible(timeout=10_000)
    assert page.evaluate("document.getElementById('log').scrollTop") == 0
    page.get_by_role("button", name="New lines").click()
    expect(page.get_by_label("Follow")).to_be_checked()


def test_hostile_text_runs_nowhere(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    """The page fixture fails on any dialog or script error; here every door gets the corpus, and no element comes out of it."""
    sign_in(owner)
    run = make_run(
        team,
        name=HOSTILE[:100],
        status=Status.FAILED,
        reason=HOSTILE,
        policy=HOSTILE,
        task=HOSTILE[:100],
        recipe=HOSTILE[:100],
        started_at=timezone.now(),
    )
    add(
        run,
        [
            started(special_tokens={3: HOSTILE}),
            measured(1, values={HOSTILE: 1.0, f"rewards/{HOSTILE}/mean": 0.5, "reward": 0.5}),
            Warned(attempt=1, time=1.7e9, message=HOSTILE),
        ],
    )
    LogChunk.objects.create(run=run, attempt=1, offset=0, text=f"\x1b[31m{HOSTILE}\x1b[0m\n\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07\n")
    Attempt.objects.filter(run=run).update(host=HOSTILE, error=HOSTILE, command=[HOSTILE])
    for part in ("", "rollouts/", "logs/", "config/", "logs/?q=script"):
        page.goto(f"/runs/{run.pk}/{part}")
        expect(page.locator("#live-badge")).not_to_have_text("connecting")
        page.wait_for_timeout(300)
        assert page.locator("main img, main b, main a[href^='javascript'], .main script").count() == 0
    page.goto(f"/runs/{run.pk}/")
    page.locator("summary", has_text="Other").click()
    expect(page.locator("figure.chart").last.locator(".main-svg").first).to_be_visible()
    with page.expect_download():
        page.locator("figure.chart").last.get_by_role("button", name="PNG").click()
