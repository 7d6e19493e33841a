"""A recipe's card says how long it takes by the team's own runs, and nothing without them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.teams.accounts.models import Team, User
from lab.training.catalog.catalog import load_catalog
from lab.training.runs.models import Run, Status
from lab.training.runs.recipe_times import RecipeTime, measure_recipe_times
from tests.lab.supervisor.spools import make_run


def finish(team: Team, seconds: float, steps: int, **fields: Any) -> Run:
    now = timezone.now()
    values = {"recipe": "grpo", "trainer": "grpo", "attempt": 1, "step": steps, "status": Status.FINISHED, **fields}
    return make_run(team, started_at=now - timedelta(seconds=seconds), finished_at=now, **values)


def times(team: Team) -> dict[str, RecipeTime]:
    return measure_recipe_times(team, load_catalog())


def test_without_finished_runs_nothing_is_said(team: Team, as_owner: Client) -> None:
    finish(team, 100, 50, status=Status.FAILED)
    finish(team, 100, 50, attempt=2)  # it may have waited for days between its attempts
    finish(team, 100, 50, recipe="custom")
    assert times(team) == {}
    assert " min" not in as_owner.get("/launch/").content.decode().partition('class="recipes"')[2].partition("</ul>")[0]


def test_the_median_pace_is_that_of_the_recipes_steps(team: Team, as_owner: Client) -> None:
    for seconds in (100, 200, 900):  # 2, 4 and 18 s a step
        finish(team, seconds + 60, 50, latest={"cold_start_seconds": 60})
    found = times(team)["grpo"]
    assert found.seconds == pytest.approx(4 * 150, rel=1e-3)
    assert found.runs == 3
    page = as_owner.get("/launch/").content.decode()
    assert "about 10 min here" in page
    assert "Median of 3 finished runs" in page


def test_a_chain_is_the_sum_of_its_stages_and_needs_all_of_them(team: Team) -> None:
    finish(team, 60, 600, recipe="demo", trainer="sft")
    finish(team, 150, 150, recipe="demo")
    assert times(team) == {}
    finish(team, 40, 80, recipe="demo", trainer="dpo")
    assert times(team)["demo"].seconds == pytest.approx(60 + 150 + 40, rel=1e-3)


def test_runs_of_another_team_say_nothing(team: Team, stranger: User) -> None:
    finish(stranger.memberships.get().team, 100, 50)
    assert times(team) == {}
