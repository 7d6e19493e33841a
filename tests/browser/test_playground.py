"""The playground in a browser: a steering vector's slider, its number and the address say the same, and both sides stand beside each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from lab.models.playground import sampling
from lab.models.playground.models import Sampling
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Checkpoint
from tests.browser.conftest import until
from tests.browser.page_checks import AXE_SCRIPT, find_cuts, find_violations
from tests.lab.playground.making import make_steering_run


def answer_newest(page: Page, count: int) -> Sampling:
    """Waits for the sampling of that number and answers it as a worker does."""
    while Sampling.across_teams.count() < count:
        page.wait_for_timeout(50)
    made = Sampling.across_teams.latest("created_at")
    sampling.run_sampling(str(made.pk))
    return made


@pytest.mark.feature(74)
def test_a_slider_steers_and_both_sides_are_read(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    vector = Checkpoint.objects.get(run=make_steering_run(team))
    page.add_init_script(path=AXE_SCRIPT)
    sign_in(owner)
    page.goto("/playground/")
    slider, number = page.get_by_label("Strength, slider"), page.get_by_label("Strength (alpha)")
    expect(slider).to_be_hidden()  # nothing is steered yet
    page.get_by_label("Vector", exact=True).select_option(str(vector.pk))
    expect(number).to_have_value("2.5")  # the one that its run chose
    assert page.evaluate("location.search") == f"?vector={vector.pk}&alpha=2.5"
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(number).to_have_value("2.6")
    page.get_by_role("button", name="Reset to 0").click()
    expect(number).to_have_value("0")
    expect(slider).to_have_value("0")
    expect(page.get_by_role("button", name="Reset to 0")).to_be_disabled()
    number.fill("3")
    expect(slider).to_have_value("3")
    page.goto(page.url)  # the address is the whole choice
    expect(number).to_have_value("3")
    expect(page.get_by_label("Vector", exact=True)).to_have_value(str(vector.pk))
    assert [*find_violations(page), *find_cuts(page)] == []
    page.get_by_label("Prompt").fill("What is 3 + 4?")
    page.get_by_label("Max completion tokens").fill("8")
    page.get_by_role("button", name="Sample", exact=True).click()
    expect(page.locator("h1")).to_contain_text("Sampling")
    made = answer_newest(page, 1)
    assert [(side.vector_id, side.alpha) for side in made.sides.all()] == [(None, 0), (vector.pk, 3)]
    expect(page.locator("[data-sampling-status]")).to_have_text("finished")
    expect(page.locator(".play-side article")).to_have_count(2)
    expect(page.locator(".play-side").first).to_contain_text("not steered")
    expect(page.locator(".play-side").nth(1)).to_contain_text("alpha 3 of the vector of #1")
    assert [*find_violations(page), *find_cuts(page)] == []
    page.get_by_label("Strength, slider").focus()
    page.keyboard.press("Home")
    expect(page.get_by_label("Strength (alpha)")).to_have_value("-10")
    page.get_by_role("button", name="Sample at this strength").click()
    until(page, f"!location.pathname.includes('{made.pk}')")
    assert answer_newest(page, 2).sides.get(place=1).alpha == -10
    expect(page.locator("[data-sampling-status]")).to_have_text("finished")


def test_a_new_team_learns_how_a_vector_is_made(page: Page, team: Team, owner: User, sign_in: Callable[[User], None]) -> None:
    run = make_steering_run(team)
    (run.folder / "final" / "steering_vector.json").unlink()  # a policy to sample from, and no vector
    sign_in(owner)
    page.goto("/playground/")
    steer = page.get_by_role("group", name="Steering vector")
    expect(steer).to_contain_text("No steering vectors yet")
    steer.get_by_role("link", name="dataset").click()
    expect(page.locator("h1")).to_contain_text("Datasets")
