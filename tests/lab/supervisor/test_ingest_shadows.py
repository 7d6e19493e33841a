"""Shadow rewards from the spool: added to the rollouts that are stored, charted at their own step, never moving the run."""

import pytest

from lab.rollouts.trajectories.models import Rollout
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team
from lab.training.runs import metrics
from lab.training.runs.models import Run
from lab.training.runs.reward_weights import collect_reward_weights
from tests.lab.supervisor.spools import make_run, measured, rollout, started, store, write
from trainers.contract.events import ShadowRewards

NAME = "odd (shadow)"


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team)


def shadow(step: int, *scores: tuple[int, int, float | None], attempt: int = 1, name: str = NAME, **values: float) -> ShadowRewards:
    said = {f"rewards/{name}/{what}": value for what, value in values.items()}
    return ShadowRewards(attempt=attempt, time=1.7e9, step=step, name=name, scores=list(scores), values=said)


def rewards(run: Run) -> dict[tuple[int, int, int], dict[str, float | None]]:
    return {(row.attempt, row.step, row.sample): row.rewards for row in Rollout.objects.filter(run=run)}


def test_scores_join_their_rollouts_in_the_same_batch_and_later(run: Run) -> None:
    store(run, started(), rollout(1, sample=0), rollout(1, sample=1), measured(1), shadow(1, (0, 0, 0.5), (0, 1, None), mean=0.5))
    store(run, rollout(2), measured(2), shadow(1, (0, 1, 2.0), name="even (shadow)"), shadow(1, (0, 0, 7.0), mean=0.75))
    own = {"correct": 1.0, "format": None}
    assert rewards(run) == {(1, 1, 0): {**own, NAME: 7.0}, (1, 1, 1): {**own, NAME: None, "even (shadow)": 2.0}, (1, 2, 0): own}
    run.refresh_from_db()
    assert run.step == 2  # a score that comes late takes nothing back
    assert {row.reward for row in Rollout.objects.filter(run=run)} == {1.0}
    series = metrics.read_metric_series(run.pk, ["rewards/odd (shadow)/mean"])["rewards/odd (shadow)/mean"]
    assert (series.steps.tolist(), series.values.tolist()) == ([1], [0.75])


def test_scores_that_come_by_themselves_leave_the_measurements_of_the_machine_for_a_step(run: Run) -> None:
    store(run, started(), rollout(1), measured(1))
    write(run.folder, [shadow(1, (0, 0, 0.5), mean=0.5)])
    assert ingest_spool(run, samples={"system/cpu_percent": 50.0}) is not None
    assert set(metrics.read_metric_series(run.pk, ["system/cpu_percent", "rewards/odd (shadow)/mean"])) == {"rewards/odd (shadow)/mean"}


def test_scores_belong_to_the_attempt_that_sampled(run: Run) -> None:
    store(run, started(), rollout(1), started(2), rollout(1, attempt=2), shadow(1, (0, 0, 1.0)), shadow(1, (0, 0, 2.0), attempt=2))
    assert {place[0]: row[NAME] for place, row in rewards(run).items()} == {1: 1.0, 2: 2.0}


def test_what_is_no_shadow_overwrites_nothing(run: Run) -> None:
    write(run.folder, [started(), rollout(1), shadow(1, (0, 0, 9.0), name="correct"), shadow(1, (-1, 0, 9.0)), shadow(1, (9, 9, 9.0))])
    batch = ingest_spool(run)
    assert batch is not None
    assert len(batch.broken) == 2
    assert rewards(run) == {(1, 1, 0): {"correct": 1.0, "format": None}}


def test_a_shadow_has_no_weight_and_a_column_its_own() -> None:
    columns = [{"name": "odd", "shadow": True, "weight": 3.0}, {"name": "even", "weight": 0.25}, {"name": "plain"}]
    weights = collect_reward_weights({"task": {"name": "mini_gsm"}, "rewards": columns})
    assert (weights[NAME], weights["even"], weights["plain"]) == (0.0, 0.25, 1.0)
    assert "odd" not in weights
