"""The verbs of a run: each changes the row once, whoever comes first."""

from datetime import timedelta

import pytest
from django.utils import timezone

from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status


@pytest.fixture
def run(team: Team) -> Run:
    return Run.objects.create(team=team, number=1, name="r", spec={}, recipe="grpo", trainer="grpo", task="mini_gsm", policy="tiny")


def again(run: Run) -> Run:
    return Run.across_teams.get(pk=run.pk)


def test_a_run_is_claimed_once(run: Run) -> None:
    other = again(run)
    assert run.claim("a/1")
    assert not other.claim("b/1")
    assert other.owner == "a/1"
    assert run.attempt == 0
    assert run.lease_until > timezone.now()


def test_a_run_waits_for_its_parent(run: Run, team: Team) -> None:
    child = Run.objects.create(team=team, number=2, name="c", spec={}, recipe="x", trainer="dpo", task="t", policy="p", parent=run)
    assert not child.claim("a/1")
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    assert child.claim("a/1")


def test_an_attempt_begins_with_an_empty_log_unless_it_has_the_number_of_the_one_before(run: Run) -> None:
    run.claim("a/1")
    assert run.begin("a/1", 1)
    Run.across_teams.filter(pk=run.pk).update(log_ingested=50)
    assert run.begin("a/1", 1)
    assert run.log_ingested == 50
    assert run.running("a/1")
    assert run.begin("a/1", 2)
    assert (run.attempt, run.log_ingested, run.status) == (2, 0, "starting")
    assert not run.begin("b/1", 3)


def test_only_the_owner_renews_and_ends(run: Run) -> None:
    run.claim("a/1")
    assert not run.renew("b/1")
    assert not run.end("b/1", Status.FINISHED)
    assert run.renew("a/1")
    assert run.end("a/1", Status.FAILED, "no", 1)
    assert not run.end("a/1", Status.FINISHED)
    assert not run.renew("a/1")
    assert (run.status, run.reason, run.exit_code, run.owner) == ("failed", "no", 1, "")


def test_a_stop_of_a_waiting_run_takes_effect_at_once(run: Run) -> None:
    assert run.request_stop()
    assert (run.status, run.reason) == ("stopped", "stopped before it started")
    assert not run.claim("a/1")
    assert not run.request_stop()


def test_a_stop_of_a_claimed_run_keeps_its_trainer_from_starting(run: Run) -> None:
    run.claim("a/1")
    assert run.request_stop()
    assert run.status == "stopping"
    assert not run.begin("a/1", 1)
    assert not run.running("a/1")
    assert not run.request_stop()
    assert run.request_stop(kill=True)
    assert run.kill_requested


def test_resume_queues_a_stopped_run_and_forgets_the_stop(run: Run) -> None:
    run.claim("a/1")
    run.request_stop(kill=True)
    run.end("a/1", Status.STOPPED, "killed")
    assert run.resume()
    assert not again(run).resume()
    assert (run.status, run.stop_requested_at, run.kill_requested, run.finished_at) == ("queued", None, False, None)
    assert run.claim("b/1")


def test_a_finished_run_is_not_resumed(run: Run) -> None:
    run.claim("a/1")
    run.end("a/1", Status.FINISHED)
    assert not run.resume()


def test_a_run_handed_back_waits_again(run: Run) -> None:
    run.claim("a/1")
    assert not run.hand_back("b/1", "x")
    assert run.hand_back("a/1", "its worker left")
    assert (run.status, run.owner, run.reason) == ("queued", "", "its worker left")


def test_only_an_expired_lease_is_lost(run: Run) -> None:
    run.claim("a/1")
    assert not run.lose()
    Run.across_teams.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert list(Run.across_teams.expired()) == [run]
    assert again(run).lose()
    assert not run.lose()
    assert run.status == "lost"
    assert list(Run.across_teams.waiting()) == [run]
