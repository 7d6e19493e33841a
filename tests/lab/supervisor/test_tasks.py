"""Which run a message starts."""

from datetime import timedelta

import pytest
from django.utils import timezone

from lab.supervision.supervisor import tasks
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import make_run

NOW = timezone.now()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs a worker has tried to start; those called "held" it does not get."""
    tried: list[str] = []

    def try_run(run_id: str, worker: str) -> bool:
        run = Run.across_teams.get(pk=run_id)
        tried.append(run.name)
        return run.status == Status.QUEUED and run.name != "held" and run.claim(worker)

    monkeypatch.setattr(tasks, "run_supervisor", try_run)
    return tried


def queue_run(team: Team, name: str, minutes: float, **fields: object) -> Run:
    return make_run(team, name=name, queued_at=NOW - timedelta(minutes=minutes), **fields)


def test_a_chain_keeps_its_place_before_runs_launched_after_it(team: Team, started: list[str]) -> None:
    first = queue_run(team, "stage 1", 30, status=Status.FINISHED)
    later = queue_run(team, "later", 10)
    second = queue_run(team, "stage 2", 30, parent=first)
    tasks.supervise_run(str(later.pk))  # its message was sent first
    assert started == ["stage 2"]
    tasks.supervise_run(str(second.pk))
    assert started == ["stage 2", "later"]


def test_a_stage_that_waits_for_another_and_another_queue_keep_nobody(team: Team, started: list[str]) -> None:
    first = queue_run(team, "stage 1", 30, status=Status.RUNNING)
    queue_run(team, "stage 2", 30, parent=first)
    queue_run(team, "elsewhere", 20, queue="big")
    later = queue_run(team, "later", 10)
    tasks.supervise_run(str(later.pk))
    assert started == ["later"]


def test_a_run_that_a_quota_holds_keeps_nobody(team: Team, started: list[str]) -> None:
    queue_run(team, "held", 30)
    later = queue_run(team, "later", 10)
    tasks.supervise_run(str(later.pk))
    assert started == ["held", "later"]


def test_a_late_message_of_a_run_that_has_ended_starts_nothing(team: Team, started: list[str]) -> None:
    over = queue_run(team, "over", 30, status=Status.FINISHED)
    tasks.supervise_run(str(over.pk))
    assert started == ["over"]
    assert over.status == Status.FINISHED
