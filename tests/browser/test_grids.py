"""Experiment grids in a browser: the form's count, the matrix in both themes and at three widths, and what the selects change."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone
from playwright.sync_api import Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.ablations.launch import create_grid
from lab.training.ablations.models import Ablation
from lab.training.runs import metrics
from lab.training.runs.models import Attempt, Run, Status
from tests.browser.page_checks import AXE_SCRIPT, find_cuts, find_violations
from tests.lab.test_grids import MEASURED, SPEC, TRAINED, TRAINER


@pytest.fixture
def me(owner: User, sign_in: Callable[[User], None]) -> User:
    sign_in(owner)
    return owner


@pytest.fixture
def grid(team: Team, me: User) -> Ablation:
    """One run of it has failed, all others have finished."""
    grid = create_grid(Ablation(team=team, author=me, name="Carries over", spec=SPEC, factors=[TRAINER, TRAINED, MEASURED], seeds=2))
    now = timezone.now()
    for place, member in enumerate(grid.in_order()):
        Attempt.objects.create(run=member.run, number=1, from_step=0, host="h", device="cpu", started_at=now)
        points = {f"heldout/{name}": [(0, 0.1), (20, 0.1 + 0.1 * (place + 1) * (1 + shift))] for shift, name in enumerate(("easy", "hard"))}
        with transaction.atomic(), connection.cursor() as cursor:
            metrics.append_metric_points(cursor, member.run_id, 1, points)
        status = Status.FAILED if place == 7 else Status.FINISHED
        Run.across_teams.filter(pk=member.run_id).update(status=status, started_at=now - timedelta(minutes=2), finished_at=now, step=20)
    return grid


def test_the_matrix_is_read_by_everybody_at_every_width_and_follows_its_selects(page: Page, grid: Ablation) -> None:
    page.add_init_script(path=AXE_SCRIPT)
    page.goto(f"/ablations/{grid.pk}/")
    expect(page.get_by_role("heading", name="Trainer: GRPO")).to_be_visible()
    assert find_violations(page) == []
    assert find_cuts(page) == []
    page.get_by_label("Show").select_option(label="Trainer: SFT → GRPO")
    expect(page.get_by_role("heading", name="Trainer: SFT → GRPO")).to_be_visible()
    expect(page.get_by_role("heading", name="Trainer: GRPO", exact=True)).to_have_count(0)
    assert "change=0.0.1" in page.url
    assert find_violations(page) == []
    page.go_back()
    expect(page.get_by_role("heading", name="Trainer: GRPO", exact=True)).to_be_visible()
    page.locator(".matrix").last.get_by_role("link").last.click()
    expect(page.locator("tr:target")).to_contain_text("GRPO · hard")
    page.locator("tr:target .chip").first.click()
    page.wait_for_url("**/runs/**")


def test_the_form_counts_its_runs_while_it_is_filled_in(page: Page, me: User) -> None:
    page.add_init_script(path=AXE_SCRIPT)
    page.goto("/ablations/grid/new/?recipe=grpo")
    page.get_by_label("Factor 1").fill("Rate")
    page.get_by_label("Levels").first.fill("training.learning_rate = 0.0003\ntraining.learning_rate = 0.001")
    page.get_by_label("Seeds per cell").fill("2")
    page.get_by_label("Seeds per cell").press("Tab")
    expect(page.get_by_role("button", name="Queue 4 runs")).to_be_visible()
    assert find_violations(page) == []
    assert find_cuts(page) == []
    page.get_by_label("Levels").first.fill("nonsense")
    page.get_by_label("Factor 2").focus()
    expect(page.get_by_text("write path = value")).to_be_visible()
