"""Ablations and sweeps in a browser: from a run's button to figures, which follow by themselves."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from lab.teams.accounts.models import Team, User
from lab.training.ablations.launch import create_ablation
from lab.training.ablations.models import Ablation
from lab.training.runs import metrics
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Attempt, Run, Status
from lab.training.sweeps.launch import create_sweep
from lab.training.sweeps.models import Sweep, Trial

SPEC: dict[str, Any] = {
    "recipe": "grpo",
    "task": {"name": "mini_gsm"},
    "training": {"trainer": "grpo", "max_steps": 20},
    "methods": [{"name": "rs-grpo"}, {"name": "siren"}],
}


@pytest.fixture
def me(owner: User, sign_in: Callable[[User], None]) -> User:
    sign_in(owner)
    return owner


def finish(ablation: Ablation, variant: str, seed: int, reward: float) -> Run:
    run = ablation.members.get(variant=variant, seed=seed).run
    now = timezone.now()
    Attempt.objects.create(run=run, number=1, from_step=0, host="h", device="cpu", started_at=now)
    with transaction.atomic(), connection.cursor() as cursor:
        metrics.append_metric_points(cursor, run.pk, 1, {"heldout/reward": [(0, 0.1), (20, reward)]})
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED, started_at=now - timedelta(minutes=2), finished_at=now, step=20)
    return run


def test_one_button_on_a_run_leads_to_its_ablation(page: Page, team: Team, me: User) -> None:
    run = launch_run(team, me, SPEC, "stacked")
    page.goto(f"/runs/{run.pk}/")
    page.get_by_role("link", name="Ablate", exact=True).click()
    expect(page.get_by_role("button", name="Queue 12 runs")).to_be_visible()
    page.get_by_label("Seeds per variant").fill("2")
    expect(page.get_by_role("button", name="Queue 8 runs")).to_be_visible()
    page.get_by_label("Seeds per variant").fill("40")
    expect(page.get_by_text("an ablation has at most 60")).to_be_visible()
    page.get_by_label("Seeds per variant").fill("2")
    page.get_by_role("button", name="Queue 8 runs").click()
    expect(page.get_by_text("0 of 8 runs finished, 8 waiting")).to_be_visible()
    assert Ablation.across_teams.get().members.count() == 8


def test_what_was_typed_before_the_scripts_ran_counts(page: Page, team: Team, me: User) -> None:
    run = launch_run(team, me, SPEC, "stacked")
    waiting: list[Route] = []
    page.route("**/htmx*.js", lambda route: waiting.append(route))
    page.goto(f"/ablations/new/?from_run={run.pk}", wait_until="commit")
    seeds = page.get_by_label("Seeds per variant")
    seeds.fill("2")
    expect(page.get_by_role("button", name="Queue 12 runs")).to_be_visible()
    waiting[0].continue_()
    expect(page.get_by_role("button", name="Queue 8 runs")).to_be_visible()
    expect(seeds).to_have_value("2")


def test_figures_and_dots_come_as_runs_finish_and_a_dot_opens_its_run(page: Page, team: Team, me: User) -> None:
    ablation = create_ablation(team, me, "Parts", SPEC, 2)
    page.goto(f"/ablations/{ablation.pk}/")
    expect(page.get_by_role("heading", name="No results yet")).to_be_visible()
    page.evaluate("window.loadedOnce = true")
    first = finish(ablation, "full", 0, 0.8)
    expect(page.get_by_text("1 of 8 runs finished")).to_be_visible()
    expect(page.locator("[data-quantity=heldout-reward] .scatterlayer .point")).to_have_count(2)  # the mean's mark and a dot
    finish(ablation, "full", 1, 0.6)
    finish(ablation, "base", 0, 0.2)
    expect(page.locator("table.figures").first.locator("tbody tr").first).to_contain_text("0.700 ± 1.27")
    assert page.evaluate("window.loadedOnce") is True
    drawn = "document.querySelector('[data-quantity=heldout-reward] .plot').data.map((one) => [one.y[0], one.x])"
    found = page.evaluate(drawn)
    assert ["full", [0.8, 0.6]] in found
    assert ["base", [0.2]] in found
    dot = page.locator("[data-quantity=heldout-reward] .scatterlayer .trace").nth(1).locator(".point").first
    dot.scroll_into_view_if_needed()
    box = dot.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(f"**/runs/{first.pk}/")


def test_a_sweep_draws_a_line_for_each_trial_that_leads_to_its_run(page: Page, team: Team, me: User) -> None:
    space = [{"key": "training.learning_rate", "values": [1e-4, 1e-3, 1e-2]}]
    about = {"sampler": "grid", "metric": "reward", "most_runs": 3, "parallel": 3}
    sweep = create_sweep(Sweep(team=team, author=me, name="Rates of learning, " * 5, spec=SPEC, space=space, **about))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/sweeps/{sweep.pk}/")
    expect(page.get_by_text("0 of 3 trials finished, 3 queued")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390, "a long name does not widen a phone's page"
    page.set_viewport_size({"width": 1440, "height": 900})
    for place, trial in enumerate(sweep.in_order()):
        Run.across_teams.filter(trial=trial).update(status=Status.FINISHED)
        Trial.across_teams.filter(pk=trial.pk).update(score=place / 10)
    lines = page.locator("#parallel .line")
    expect(lines).to_have_count(3)  # the page follows by itself
    page.locator("#trial-3").get_by_role("link").focus()
    expect(page.locator("#parallel .line.lit")).to_have_attribute("data-trial", "trial-3")
    lines.last.dispatch_event("click")  # the best lies on top
    page.wait_for_url(f"**/runs/{sweep.trials.get(number=2).run_id}/")


def test_stopping_and_deleting_ask_first(page: Page, team: Team, me: User) -> None:
    ablation = create_ablation(team, me, "Parts", SPEC, 1)
    page.goto(f"/ablations/{ablation.pk}/")
    page.get_by_role("button", name="Stop all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert not Run.across_teams.exclude(status=Status.QUEUED).exists()
    page.get_by_role("button", name="Stop all").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop all").click()
    expect(page.get_by_text("4 runs are stopping and saving")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No ablations yet")).to_be_visible()
    assert Run.across_teams.count() == 4
