"""Which run a message starts: the next of its queue, whoever it names."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from lab.supervision.supervisor import tasks
from lab.supervision.supervisor.run_claims import claim_next_run
from lab.supervision.supervisor.supervise import Supervisor
from lab.teams.accounts.models import Team
from lab.training.runs.models import Priority, Run, Status
from lab.training.workers.models import Worker
from lab.watching.usage.models import Quota
from tests.lab.supervisor.spools import make_run

NOW = timezone.now()
Queue = Callable[..., Run]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that a worker has claimed through a message."""
    names: list[str] = []
    monkeypatch.setattr(Supervisor, "work", lambda supervisor: names.append(supervisor.run.name))
    return names


@pytest.fixture
def other(db: None) -> Team:
    return Team.objects.create(name="Other", slug="other")


def queue_run(team: Team, name: str, minutes: float, **fields: object) -> Run:
    return make_run(team, name=name, queued_at=NOW - timedelta(minutes=minutes), **fields)


def claim_all(run: Run) -> list[str]:
    """Names of the runs that workers claim one after the other, none of which ends."""
    names = []
    while claimed := claim_next_run(str(run.pk), f"w{len(names)}"):
        names.append(claimed[0].name)
    return names


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


def test_a_run_that_a_quota_holds_keeps_nobody(team: Team, other: Team, started: list[str]) -> None:
    Quota.objects.create(team=team, concurrent_runs=0)
    held = queue_run(team, "held", 30)
    later = queue_run(other, "later", 10)
    tasks.supervise_run(str(later.pk))
    assert started == ["later"]
    held.refresh_from_db()
    assert "0 of 0 concurrent runs" in held.reason


def test_a_late_message_of_a_run_that_has_ended_starts_nothing(team: Team, started: list[str]) -> None:
    over = queue_run(team, "over", 30, status=Status.FINISHED)
    tasks.supervise_run(str(over.pk))
    assert started == []


@pytest.mark.feature(5)
def test_priority_comes_before_the_order_of_people_and_that_before_age(team: Team) -> None:
    queue_run(team, "low", 90, priority=Priority.LOW)
    queue_run(team, "old", 60)
    queue_run(team, "second", 10, queue_place=2)
    queue_run(team, "first", 5, queue_place=1)
    high = queue_run(team, "high", 1, priority=Priority.HIGH)
    assert claim_all(high) == ["high", "first", "second", "old", "low"]


@pytest.mark.feature(5)
def test_teams_take_turns_and_the_one_with_fewer_runs_in_training_goes_first(team: Team, other: Team) -> None:
    queue_run(team, "in training", 90, status=Status.RUNNING, started_at=NOW)
    for minutes in (60, 50):
        queue_run(team, f"ours {minutes}", minutes, priority=Priority.HIGH)  # a priority is the team's own matter
    for minutes in (9, 8, 7):
        last = queue_run(other, f"theirs {minutes}", minutes)
    assert claim_all(last) == ["theirs 9", "ours 60", "theirs 8", "ours 50", "theirs 7"]


@pytest.mark.feature(5)
def test_with_one_worker_the_team_that_has_waited_longest_for_a_turn_is_next(team: Team, other: Team) -> None:
    for name in "ab":
        queue_run(team, f"ours {name}", 60)
    last = queue_run(other, "theirs", 5)
    Run.across_teams.filter(name="ours a").update(status=Status.FINISHED, started_at=NOW)
    assert claim_all(last) == ["theirs", "ours b"]


@pytest.mark.feature(8)
def test_a_drained_worker_claims_nothing_until_it_takes_runs_again(team: Team) -> None:
    run = queue_run(team, "waits", 5)
    Worker.objects.create(name="w0", host="h", pid=1, queues=["gpu"], takes_runs=False)
    assert claim_all(run) == []
    Worker.objects.update(takes_runs=True)
    assert claim_all(run) == ["waits"]


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_get_the_runs_of_two_teams(team: Team) -> None:
    other = Team.objects.create(name="Other", slug="other")
    runs = [queue_run(team, f"ours {number}", 60 - number) for number in range(3)] + [queue_run(other, "theirs", 5)]
    names: list[str] = []

    def claim(run: Run, worker: str) -> None:
        claimed = claim_next_run(str(run.pk), worker)
        names.extend([claimed[0].name] if claimed else [])
        connection.close()

    threads = [threading.Thread(target=claim, args=(run, f"w{number}")) for number, run in enumerate(runs[:2])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == ["ours 0", "theirs"]
