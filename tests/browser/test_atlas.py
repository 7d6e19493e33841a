"""The atlas in a browser: maps that are drawn, cells by pointer and keyboard, and their tokens as text."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.conftest import until
from tests.browser.training import add
from tests.hostile import MARK
from tests.lab.supervisor.spools import make_run, measured, rollout, started
from trainers.contract.arrays import pack_array, pack_ids

HOSTILE = f"<img src=x onerror=window.{MARK}=1>"


@pytest.fixture
def run(team: Team, owner: User, sign_in: Callable[[User], None]) -> Run:
    """Three steps of four tokens: entropy grows with the position, and at step 2 the last token is the most uncertain of all."""
    sign_in(owner)
    run = make_run(team, status=Status.RUNNING)
    text = f"ab {HOSTILE}"
    arrays = {"ids": pack_ids([1, 2, 3, 4]), "lengths": pack_array([1, 1, 1, len(HOSTILE)], "B"), "logprobs": pack_array([-0.5] * 4, "e")}
    made = [
        rollout(
            step, 0, sample, completion=text, entropies=pack_array([0.1, 0.2, 0.3, 3.0 if step == 2 else 0.4], "e"), reward=float(sample), **arrays
        )
        for step in (1, 2, 3)
        for sample in range(4)
    ]
    add(run, [started(), *made, rollout(0, phase="heldout"), measured(0, values={"heldout/reward": 0.5})])
    return run


def visit(page: Page, run: Run, query: str = "") -> None:
    page.goto(f"/runs/{run.pk}/atlas/{query}")
    expect(page.locator("[data-map=grid] [data-note]")).to_contain_text("rollout")


def pixel(page: Page, column: int, row: int, columns: int = 3, rows: int = 4) -> list[int]:
    """The colour in the middle of a cell of the tokens' map, row 0 below."""
    script = """([column, row, columns, rows]) => {
        const canvas = document.querySelector("[data-map=grid] canvas");
        const scale = canvas.width / canvas.clientWidth;
        const [left, top, right, bottom] = [58, 6, canvas.clientWidth - 8, canvas.clientHeight - 36];
        const x = left + ((right - left) * (column + 0.5)) / columns, y = top + ((bottom - top) * (rows - row - 0.5)) / rows;
        return [...canvas.getContext("2d").getImageData(x * scale, y * scale, 1, 1).data].slice(0, 3);
    }"""
    return list(page.evaluate(script, [column, row, columns, rows]))


def click_cell(page: Page, column: int, row: int) -> None:
    box = page.locator("[data-map=grid] [data-heat]").bounding_box()
    assert box is not None
    width, height = box["width"] - 58 - 8, box["height"] - 6 - 36
    page.mouse.click(box["x"] + 58 + width * (column + 0.5) / 3, box["y"] + 6 + height * (4 - row - 0.5) / 4)


def test_brighter_is_more_uncertain(page: Page, run: Run) -> None:
    visit(page, run)
    page.mouse.move(0, 0)
    brightness = [[sum(pixel(page, column, row)) for row in range(4)] for column in range(3)]
    assert brightness[0] == sorted(brightness[0])
    assert brightness[1][3] > brightness[0][3]
    assert brightness[1][3] > 500


@pytest.mark.feature(106)
def test_a_cell_opens_its_tokens_in_context_and_is_in_the_address(page: Page, run: Run) -> None:
    visit(page, run)
    click_cell(page, 1, 3)
    expect(page.get_by_role("heading", name="Step 2, position 3")).to_be_visible()
    tokens = page.locator(".token-list li")
    expect(tokens).to_have_count(1)  # the same text four times
    expect(tokens).to_contain_text("and 3 similar")
    expect(tokens.locator("mark")).to_have_text(HOSTILE.replace(" ", "␣"))
    assert page.evaluate(f"window.{MARK}") is None
    assert "steps=2-2&positions=3-3" in page.url
    page.reload()
    expect(page.get_by_role("heading", name="Step 2, position 3")).to_be_visible()
    tokens.get_by_role("link").click()
    page.wait_for_url("**/rollouts/*/?tokens=entropy&token=3*")


def test_cells_are_reached_by_keyboard_and_said_in_words(page: Page, run: Run) -> None:
    visit(page, run)
    page.keyboard.press("e")
    expect(page.locator("[data-map=grid] [data-heat]")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#grid-readout")).to_have_text("step 2, position 1: mean 0.200 nats over 4 tokens")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Step 2, position 1")).to_be_visible()
    page.locator("[data-map=grid] summary").click()
    expect(page.locator("[data-map=grid] tbody tr")).to_have_count(4)
    assert page.locator("[data-map=grid] tbody tr").nth(3).inner_text().split() == ["3", "0.400", "3", "0.400"]


def test_settings_are_kept_in_the_address(page: Page, run: Run) -> None:
    visit(page, run)
    page.get_by_role("button", name="Kind of token").click()
    expect(page.get_by_role("button", name="Log", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Negative log-probability").click()
    page.get_by_label("Log colour").check()
    page.get_by_role("button", name="Length").click()
    page.locator("#step-slider").fill("2")
    until(page, "location.search.includes('step=2')")
    assert page.evaluate("location.search") == "?step=2&of=surprise&by=class&field=length&log=1"
    page.reload()
    expect(page.get_by_role("button", name="Negative log-probability")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Log colour")).to_be_checked()
    expect(page.locator("[data-map=grid] [data-help]")).to_contain_text("Negative log-probability of the sampled token")
    page.get_by_role("link", name="Held-out").click()
    expect(page.locator("[data-map=grid] [data-note]")).to_contain_text("from 1 rollout")
    assert "phase=heldout" in page.url


@pytest.mark.feature(30)
def test_a_cell_of_the_distribution_opens_its_rollouts_in_the_table(page: Page, run: Run) -> None:
    visit(page, run)
    expect(page.locator("[data-map=values] [data-note]")).to_have_text("12 rollouts")
    page.locator("[data-map=values] [data-heat]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#values-readout")).to_contain_text("step 2, reward")
    expect(page.locator("#values-readout")).to_contain_text("1 rollout (25 %) · mean 1.50")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollouts/?run=*")
    assert f"run={run.number}&f=phase%3Ais%3Atrain&f=step%3Aeq%3A2&f=reward%3Age%3A" in page.url
