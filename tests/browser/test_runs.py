"""The runs list in a browser: rows that change in place while the database does, filters in the URL, new runs announced."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs import live, publisher
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Run, Status
from lab.training.runs.verbs import archive_runs
from tests.browser.conftest import until, wait_with_keys_for_load
from tests.browser.page_checks import AXE_SCRIPT, find_cuts, find_violations

# How far the page and the table are wider than their room, and the words of cells that lie beside it.
BESIDE = """() => {
  const wrap = document.querySelector(".table-wrap"), room = wrap.getBoundingClientRect();
  const seen = [...wrap.querySelectorAll("thead th, tbody tr > *")].filter((cell) => cell.checkVisibility());
  const cut = seen.filter((cell) => cell.getBoundingClientRect().right > room.right + 1
    || (cell.matches(".num, .c-status") && cell.scrollWidth > cell.clientWidth + 1));
  const words = cut.slice(0, 9).map((cell) => cell.textContent.trim());
  return [document.documentElement.scrollWidth - innerWidth, wrap.scrollWidth - wrap.clientWidth, words];
}"""
GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "recipe": "grpo"}


@pytest.fixture
def runs(team: Team, owner: User) -> list[Run]:
    return [launch_run(team, owner, GRPO, name) for name in ("one", "two", "three")]


def names(page: Page) -> list[str]:
    return [text.split(" ", 1)[1] for text in page.locator("tr[data-run] .c-name > a").all_inner_texts()]


def expect_names(page: Page, expected: list[str]) -> None:
    """Waits for the rows, where `names` reads what has arrived: after a click without scripts the next page may still be on its way."""
    expect(page.locator("tr[data-run] .c-name > a")).to_have_text([re.compile(rf"^\s*#\d+ {re.escape(name)}\s*$") for name in expected])


def changed(run: Run, **fields: Any) -> None:
    """What a supervisor does: writes the row, then tells the pages."""
    Run.across_teams.filter(pk=run.pk).update(**fields)
    run.refresh_from_db()
    live.publish_state(run)
    publisher.flush_messages()


def test_cells_change_in_place_and_rows_do_not_move(page: Page, runs: list[Run], owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/?sort=-progress")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    before = names(page)
    page.evaluate("window.loadedOnce = true")
    row = page.locator(f'tr[data-run="{runs[0].pk}"]')
    assert runs[0].claim("host/abc")
    assert runs[0].running("host/abc")
    changed(runs[0], step=60, latest={"reward": 0.654, "entropy": 0.5, "tokens_per_second": 4321, "step_seconds": 2.0}, progress_at=timezone.now())
    expect(row.locator(".chip")).to_have_text("running")
    expect(row.locator('[data-cell="steps"]')).to_have_text("60/150")
    expect(row.locator('[data-cell="eta"]')).to_have_text("3 min left")
    expect(row.locator('[data-cell="reward"]')).to_have_text("0.654")
    expect(row.locator('[data-cell="speed"]')).to_have_text("4.3k")
    assert names(page) == before
    assert runs[0].end("host/abc", Status.FAILED, "out of memory")
    changed(runs[0])
    expect(row.locator(".chip")).to_have_attribute("data-status", "failed")
    expect(row.locator('[data-cell="why"]')).to_have_text("out of memory")
    assert page.evaluate("window.loadedOnce") is True


def test_rows_that_were_read_before_a_change_do_not_undo_it(page: Page, runs: list[Run], owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    held: list[Route] = []
    page.route(lambda url: "/runs/?" in url, lambda route: held.append(route))
    with page.expect_request(lambda request: "/runs/?" in request.url):
        page.goto("/runs/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    read = held[0].fetch()
    chip = page.locator(f'tr[data-run="{runs[0].pk}"] .chip')
    before = chip.element_handle()
    changed(runs[0], status=Status.FAILED, reason="out of memory")
    expect(chip).to_have_text("failed")
    held[0].fulfill(response=read)
    until(page, "(chip) => !chip.isConnected", arg=before)  # the rows have come
    assert chip.text_content() == "failed"  # not some time later


def test_a_change_nobody_published_arrives_too(page: Page, runs: list[Run], owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    Run.across_teams.filter(pk=runs[1].pk).update(status=Status.RUNNING, step=30)
    expect(page.locator(f'tr[data-run="{runs[1].pk}"] .chip')).to_have_text("running", timeout=12_000)


def test_a_new_run_is_announced_and_shown_on_request(page: Page, runs: list[Run], team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    fourth = launch_run(team, owner, GRPO, "four")
    changed(fourth)
    pill = page.get_by_role("button", name="1 new run")
    expect(pill).to_be_visible()
    assert names(page) == ["three", "two", "one"]
    pill.click()
    expect(page.locator("tr[data-run]")).to_have_count(4)
    expect_names(page, ["four", "three", "two", "one"])


@pytest.mark.feature(25)
def test_filters_and_sorting_live_in_the_url_and_in_the_history(page: Page, runs: list[Run], owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    page.get_by_label("Text in the name").fill("tw")
    expect(page.locator("tr[data-run]")).to_have_count(1)
    page.wait_for_url("**/runs/?q=tw")
    page.get_by_role("link", name="Run", exact=True).click()
    page.wait_for_url("**/runs/?q=tw&sort=name")
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Run ↑")
    page.get_by_role("link", name="Text: tw").click()
    expect(page.locator("tr[data-run]")).to_have_count(3)
    expect_names(page, ["one", "three", "two"])
    expect(page.get_by_label("Text in the name")).to_have_value("")
    page.go_back()
    expect(page.locator("tr[data-run]")).to_have_count(1)
    expect(page.get_by_label("Text in the name")).to_have_value("tw")
    page.reload()
    expect_names(page, ["two"])
    page.get_by_label("Text in the name").fill("nothing")
    expect(page.get_by_role("heading", name="No results")).to_be_visible()
    page.get_by_role("link", name="Clear the filters").click()
    expect(page.locator("tr[data-run]")).to_have_count(3)


@pytest.mark.feature(25)
def test_columns_are_chosen_pinned_and_moved_by_keyboard(page: Page, runs: list[Run], owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    page.get_by_text("Columns", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_label("Find a column").fill("learning rate task")
    expect(page.locator("[data-column]:visible")).to_have_count(0)
    page.get_by_label("Find a column").fill("toke")
    tokens = page.get_by_role("listitem").filter(has=page.locator('input[name="column"][value="tokens"]'))
    tokens.get_by_label("Tokens", exact=True).focus()
    page.keyboard.press("Space")
    tokens.get_by_label("Pin").press("Space")
    page.get_by_label("Find a column").fill("")
    up = page.get_by_role("button", name="Move Run up")
    up.press("Enter")
    expect(up).to_be_focused()  # for the next step
    expect(page.locator("#announcer")).to_have_text(re.compile(r"Run: 1 of \d+"))
    page.get_by_role("button", name="Apply").press("Enter")
    page.wait_for_url("**/runs/?cols=*")
    heads = page.locator(".runs thead th:visible")
    expect(heads).to_have_text(["", "Tokens", "Run", "Status", *[re.compile(".")] * 10])
    page.goto("/runs/")  # remembered, and said in the address for who copies it
    expect(heads.nth(1)).to_have_text("Tokens")
    page.wait_for_url(re.compile(r"\?cols=.*tokens"))

    page.set_viewport_size({"width": 800, "height": 900})
    left = "() => [...document.querySelectorAll('.runs tbody tr:first-child .pinned')].map((cell) => Math.round(cell.getBoundingClientRect().left))"
    before = page.evaluate(left)
    page.evaluate("document.querySelector('.table-wrap').scrollLeft = 300")
    assert page.evaluate("document.querySelector('.table-wrap').scrollLeft") > 100
    assert page.evaluate(left) == before  # what is pinned stays
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("button", name="Reset columns").click()
    expect(heads.nth(1)).to_have_text("Status")


@pytest.mark.feature(25)
def test_a_group_opens_and_ticks_its_runs(page: Page, runs: list[Run], owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    Run.across_teams.filter(pk=runs[2].pk).update(task="kb")
    page.goto("/runs/")
    page.get_by_label("Group by").select_option("task")
    page.wait_for_url("**/runs/?group=task")
    page.get_by_label("Select the runs of mini_gsm").check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_role("link", name="mini_gsm").click()
    expect(page.locator("tr[data-run]")).to_have_count(2)
    page.get_by_label("Select #1 one").uncheck()
    assert page.get_by_label("Select the runs of mini_gsm").evaluate("(box) => [box.checked, box.indeterminate]") == [False, True]
    page.get_by_label("Select the runs of kb").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    page.wait_for_url("**/compare/?run=2&run=3")


def test_a_hostile_name_never_runs_as_script(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    run = launch_run(team, owner, GRPO, "<img src=x onerror=alert(1)><script>alert(2)</script>")
    sign_in(owner)
    page.goto("/runs/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    changed(run, status=Status.FAILED, reason="<img src=x onerror=alert(3)>")
    cell = page.locator(f'tr[data-run="{run.pk}"] [data-cell="why"]')
    expect(cell).to_have_text("<img src=x onerror=alert(3)>")
    page.wait_for_timeout(1500)  # the rows are fetched again after a change of status
    expect(cell).to_have_text("<img src=x onerror=alert(3)>")
    assert page.locator("main img").count() == 0


def test_ticked_runs_are_tagged_archived_and_brought_back(
    page: Page, runs: list[Run], team: Team, owner: User, sign_in: Callable[[User], None]
) -> None:
    for name in ("four", "five"):
        launch_run(team, owner, GRPO, name)
    Run.objects.of(team).exclude(number=4).update(status=Status.FINISHED)
    sign_in(owner)
    page.goto("/runs/")
    bar = page.get_by_role("form", name="What to do with the selected runs")
    expect(bar).not_to_be_visible()
    page.get_by_label("Select #5 five").check()
    page.get_by_label("Select #2 two").click(modifiers=["Shift"])
    expect(bar.get_by_text("4 selected")).to_be_visible()
    page.keyboard.press("Escape")
    expect(bar).not_to_be_visible()
    page.get_by_label("Select all runs on this page").check()
    expect(bar.get_by_text("5 selected")).to_be_visible()

    bar.get_by_label("Tag for the selected runs").fill("night")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Tagged 5 runs “night”.")).to_be_visible()
    expect(page.get_by_role("link", name="night")).to_have_count(5)
    expect(bar.get_by_text("5 selected")).to_be_visible()  # for the next act

    bar.get_by_role("button", name="Archive", exact=True).click()
    expect(page.get_by_text("Archived 4 runs. Left unchanged: #4 (queued, stop it first).")).to_be_visible()
    expect(page.locator("tr[data-run]")).to_have_count(1)
    expect(bar).not_to_be_visible()
    page.get_by_role("link", name="Archived (4)").click()
    expect(page.locator("tr[data-run]")).to_have_count(4)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Unarchived 4 runs.")).to_be_visible()
    expect(page.get_by_role("heading", name="No results")).to_be_visible()
    page.get_by_role("link", name="Archived: only").click()
    expect(page.locator("tr[data-run]")).to_have_count(5)

    page.get_by_label("Select #4 four").check()
    bar.get_by_role("button", name="Stop").click()
    page.locator("#confirm-dialog").get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stop requested for 1 run.")).to_be_visible()
    expect(page.locator(".c-status .chip").nth(1)).to_have_text("stopped")


def test_a_run_is_renamed_by_keyboard_and_open_pages_follow(page: Page, runs: list[Run], owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.get_by_label("Select #1 one").check()
    other = page.context.new_page()
    wait_with_keys_for_load(other)
    other.goto(f"/runs/{runs[0].pk}/logs/")
    name = other.get_by_label("Name of run #1")

    def settle() -> None:
        """Until htmx has the header in hand: before, the form is sent and the link followed as without scripts."""
        until(other, "() => !document.querySelector('.htmx-request, .htmx-swapping, .htmx-settling, .htmx-added')")

    other.get_by_role("link", name="Rename the run").focus()
    other.keyboard.press("r")
    expect(name).to_be_focused()
    settle()
    other.keyboard.type("   ")
    other.keyboard.press("Enter")
    expect(other.get_by_text("Enter a name.")).to_be_visible()
    expect(name).to_be_focused()
    settle()
    other.keyboard.press("Escape")
    expect(name).not_to_be_visible()
    expect(other.locator("h1")).to_have_text("#1 one")
    settle()
    other.keyboard.press("r")
    expect(name).to_be_focused()
    settle()
    other.keyboard.type("one & only")
    other.keyboard.press("Enter")
    expect(other.locator("h1")).to_have_text("#1 one & only")
    expect(other).to_have_title("#1 one & only · queued")
    other.close()
    row = page.locator(f'tr[data-run="{runs[0].pk}"]')
    expect(row.locator(".c-name > a")).to_have_text("#1 one & only")
    expect(page.get_by_label("Select #1 one & only")).to_be_checked()  # by its new name
    archive_runs(runs[0].team, [1])  # refused: it is queued
    Run.across_teams.filter(pk=runs[0].pk).update(status=Status.FINISHED)
    archive_runs(runs[0].team, [1])
    publisher.flush_messages()
    expect(row.get_by_text("Archived", exact=True)).to_be_visible()


def test_the_list_filters_and_sorts_without_scripts(without_scripts: Page, runs: list[Run], owner: User, sign_in: Callable[[User], None]) -> None:
    page = without_scripts
    page.goto("/runs/")
    page.get_by_label("Text in the name").fill("tw")
    page.get_by_role("button", name="Filter").click()
    expect_names(page, ["two"])
    page.get_by_role("link", name="Text: tw").click()
    page.get_by_role("link", name="Run", exact=True).click()
    expect_names(page, ["one", "three", "two"])


def test_the_demo_button_of_an_empty_lab_queues_the_chain(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page.goto("/runs/")
    page.get_by_role("button", name="Launch the demo").click()
    page.wait_for_url("**/runs/*-*/")
    assert [run.trainer for run in Run.objects.of(team).order_by("number")] == ["sft", "grpo", "dpo"]
    page.goto("/runs/")
    expect(page.locator("tr[data-run]")).to_have_count(3)
    expect(page.get_by_text("no worker for gpu: start one")).to_be_visible()
    expect(page.get_by_text("after #1")).to_be_visible()


def test_the_table_has_room_for_its_columns(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    for number in range(1, 4):
        run = launch_run(team, owner, GRPO, f"qwen3-8b-mini-gsm-grpo-token-entropy-advantages-lr-1e-6-beta-0.04-seed-{number}")
        Run.across_teams.filter(pk=run.pk).update(
            status=Status.RUNNING,
            step=1200,
            total_steps=15000,
            recipe="token_entropy_advantages",
            task="count_letters_multi_turn",
            progress_at=timezone.now(),
            policy="Qwen/Qwen3-8B-Instruct-2507-long-context",
            tags=["baseline-for-the-paper", "night", "do-not-delete"],
            latest={"reward": -0.125, "entropy": 0.5, "tokens_per_second": 43210, "step_seconds": 62.0},
        )
    sign_in(owner)
    page.goto("/runs/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    for width in (1440, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(BESIDE) == [0, 0, []], width
    page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.feature(5)
def test_the_queue_is_put_in_order_by_keyboard_and_by_dragging_and_fits(
    page: Page, runs: list[Run], team: Team, owner: User, sign_in: Callable[[User], None]
) -> None:
    first, second, third = runs
    sign_in(owner)
    page.add_init_script(path=AXE_SCRIPT)
    page.goto("/queue/")
    links = page.locator("tr[data-run] .q-name > a")
    expect(links).to_have_text(["#1 one", "#2 two", "#3 three"])
    page.get_by_role("button", name="Move #3 to the top").focus()
    page.keyboard.press("Enter")
    expect(links).to_have_text(["#3 three", "#1 one", "#2 two"])
    expect(page.get_by_role("status").filter(has_text="Moved #3 to the top, before #1 in the queue gpu.")).to_be_visible()
    expect(page.get_by_role("button", name="Move #3 to the top")).to_be_focused()
    page.locator(f'tr[data-run="{second.number}"] [data-grip]').drag_to(
        page.locator(f'tr[data-run="{first.number}"] .q-name'), target_position={"x": 20, "y": 2}
    )
    expect(links).to_have_text(["#3 three", "#2 two", "#1 one"])
    page.get_by_label("Priority of #1").select_option("High")
    expect(links).to_have_text(["#1 one", "#3 three", "#2 two"])
    assert third.claim("box:1/a")  # a worker took it while the page was open
    page.get_by_role("button", name="Move #3 down").click()
    expect(page.get_by_role("status").filter(has_text="#3 waits no longer: the worker box:1 has taken it.")).to_be_visible()
    expect(page.locator("#training-title + .table-wrap .q-name")).to_have_text("#3 three")
    launch_run(team, owner, GRPO, "a stage with a name that is long enough to be broken into lines", parent=first)
    page.reload()
    expect(page.get_by_text("with #1")).to_be_visible()
    assert [*find_violations(page), *find_cuts(page)] == []
