"""Backtests: a reward function scored on stored rollouts by a process of its own, and what it would have changed within groups."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.rollouts.backtests import scoring, stored_rows
from lab.rollouts.backtests.chores import sweep_backtests
from lab.rollouts.backtests.comparison import ScoredRollout, compare_scores
from lab.rollouts.backtests.models import LOST_AFTER, Backtest, BacktestStatus
from lab.rollouts.backtests.requests import prepare_backtest, start_backtest
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.lab.rewards.making import editor_inputs, make_function
from tests.lab.supervisor.spools import make_run, rollout, started, store

LONGER = "def score(completion, reference, data):\n    return None if completion == 'skip' else float(completion.count('a'))\n"


def score(group: int, sample: int, before: float | None, after: float | None, **fields: Any) -> ScoredRollout:
    return ScoredRollout(group * 10 + sample, 1, group, sample, before, after, **fields)


def test_flips_ties_and_zero_variance_are_counted_within_groups() -> None:
    rows = [score(0, sample, before, after) for sample, (before, after) in enumerate([(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])]
    rows += [score(1, sample, float(sample), 2.0) for sample in range(2)]  # loses its variance
    rows += [score(2, 0, 1.0, None, error="boom"), score(2, 1, 0.0, None), score(3, 0, None, 1.0)]
    result = compare_scores(rows)
    found = result["summary"]
    assert (found["rollouts"], found["scored"], found["errors"], found["abstained"], found["groups"]) == (8, 6, 1, 1, 2)
    assert (found["pairs"], found["flipped_pairs"], found["tied_pairs"]) == (3, 1, 2)
    assert (found["flat_before"], found["flat_after"], found["new_flat"]) == (0, 1, 1)
    assert (found["signs"], found["flipped_signs"]) == (3, 2)
    assert [(flip["group"], flip["sample"]) for flip in result["flips"]] == [(0, 0), (0, 1)]
    assert result["flips"][0]["advantage_before"] == pytest.approx(2 / 3)
    assert found["messages"] == [{"message": "boom", "count": 1}]
    assert compare_scores([])["summary"]["correlation"] is None


def test_scores_that_only_scale_the_reward_flip_nothing() -> None:
    rows = [score(group, sample, sample / 4, 3.0 * sample + 1) for group in range(3) for sample in range(4)]
    found = compare_scores(rows)["summary"]
    assert (found["pairs"], found["flipped_pairs"], found["flipped_signs"], found["new_flat"]) == (18, 0, 0, 0)
    assert found["correlation"] == pytest.approx(1.0)


@pytest.fixture
def run(team: Team) -> Run:
    made = make_run(team)
    texts = ["", "a", "aa", "skip"]
    answers = [
        rollout(step, 0, sample, completion=text, reward=float(-sample), rewards={"correct": float(-sample), "flat": 1.0})
        for step in (1, 2)
        for sample, text in enumerate(texts)
    ]
    store(made, started(), *answers)
    Run.across_teams.filter(pk=made.pk).update(step=2)
    made.refresh_from_db()
    return made


@pytest.mark.feature(94)
def test_a_draft_of_the_editor_is_scored_on_stored_rollouts_and_its_flips_are_listed(as_owner: Client, run: Run) -> None:
    sent = as_owner.post("/rewards/new/", editor_inputs("code", act="backtest", source=LONGER))
    assert (sent.status_code, sent.headers["Location"]) == (307, "/backtests/new/")
    form = as_owner.post("/backtests/new/", editor_inputs("code", act="backtest", source=LONGER, run=str(run.pk))).content.decode()
    assert "Backtest a draft" in form
    assert '<option value="flat"' in form
    inputs = {"definition": json.dumps({"kind": "code", "source": LONGER}), "run": str(run.pk), "token": "once", "act": "start"}
    wrong = as_owner.post("/backtests/new/", inputs | {"first": "7"})
    assert wrong.status_code == 422
    assert "last step is before the first" in wrong.content.decode()
    first, second = (as_owner.post("/backtests/new/", inputs).headers["Location"] for _ in range(2))
    assert first == second
    backtest = Backtest.across_teams.get()
    assert "Waiting for a worker" in as_owner.get(first).content.decode()
    scoring.run_backtest(str(backtest.pk))
    backtest.refresh_from_db()
    assert (backtest.status, backtest.error, backtest.done, backtest.total) == (BacktestStatus.FINISHED, "", 8, 8)
    found = backtest.result["summary"]
    assert (found["abstained"], found["pairs"], found["flipped_pairs"], found["flipped_signs"]) == (2, 6, 6, 4)
    assert found["seconds_mean"] > 0
    page = as_owner.get(first).content.decode()
    assert f'href="/rollouts/{backtest.result["flips"][0]["id"]}/"' in page
    assert as_owner.get(f"{first}?part=state").headers["HX-Refresh"] == "true"


def test_a_version_is_compared_with_a_column_of_the_steps_that_were_chosen(as_owner: Client, owner: User, run: Run) -> None:
    version = make_function(run.team, owner, "longer", {"kind": "code", "source": LONGER})
    assert f"#{run.number}" in as_owner.get(f"/backtests/new/?version={version.pk}").content.decode()
    inputs = {"version": str(version.pk), "run": str(run.pk), "first": "2", "against": "flat", "token": "once", "act": "start"}
    assert "has no such reward column" in as_owner.post("/backtests/new/", inputs | {"against": "else"}).content.decode()
    assert as_owner.post("/backtests/new/", inputs).status_code == 302
    backtest = Backtest.across_teams.get()
    assert (backtest.name, backtest.first_step, backtest.last_step, backtest.against) == ("longer v1", 2, 2, "flat")
    assert [row.step for row in stored_rows.load_rollouts(backtest)] == [2] * 4
    assert {stored_rows.find_stored_reward(row, "flat") for row in stored_rows.load_rollouts(backtest)} == {1.0}
    assert "longer v1" in as_owner.get(f"/backtests/?function={version.function_id}").content.decode()
    assert {"words": f"longer v1 on #{run.number}", "kind": "backtest", "url": f"/backtests/{backtest.pk}/"} in as_owner.get(
        "/palette/?q=longer"
    ).json()["found"]


def test_too_many_rollouts_are_cut_to_whole_groups_of_the_newest_steps(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    backtest = prepare_backtest(run, None, {}, None, (None, None))
    monkeypatch.setattr(stored_rows, "MOST_ROLLOUTS", 6)
    assert [(row.step, row.sample) for row in stored_rows.load_rollouts(backtest)] == [(2, sample) for sample in range(4)]


def test_what_cannot_be_scored_says_why_and_a_lost_worker_is_noticed(as_owner: Client, run: Run) -> None:
    backtest = prepare_backtest(run, None, {"kind": "library", "function": "gone", "config": {}}, None, (None, None))
    start_backtest(backtest)
    scoring.run_backtest(str(backtest.pk))
    backtest.refresh_from_db()
    assert backtest.status == BacktestStatus.FAILED
    assert "no such reward function" in backtest.error
    assert backtest.retry()
    assert backtest.claim()
    Backtest.across_teams.update(beat_at=timezone.now() - LOST_AFTER - timedelta(seconds=1))
    sweep_backtests()
    assert "The worker was lost" in as_owner.get(f"/backtests/{backtest.pk}/").content.decode()
