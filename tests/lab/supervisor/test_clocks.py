"""A process whose own clock is wrong: what it writes and what it decides goes by the database's clock, the only one that all share."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from lab.data.datasets.models import Dataset, Version, VersionState
from lab.lib.clock import database_now
from lab.lib.refusals import Refusal
from lab.models.playground.models import Sampling, SamplingStatus
from lab.rollouts.replay.models import Replay, ReplayStatus
from lab.supervision.supervisor.sweeper import OVERDUE, Sweeper
from lab.teams.accounts.models import Team, User
from lab.training.runs import live
from lab.training.runs.models import Run, Status
from lab.training.workers import heartbeat, listing
from lab.training.workers.heartbeat import Heartbeat
from lab.training.workers.models import Worker
from lab.watching.usage import ledger
from lab.watching.usage.models import Lease
from tests.lab.supervisor.spools import make_run

pytestmark = pytest.mark.django_db

SHIFTS = (-86_400, -45, 45, 86_400)  # seconds a clock is ahead
SLACK = timedelta(seconds=10)  # of a loaded machine
Shift = Callable[[float], None]


@pytest.fixture
def shift(monkeypatch: pytest.MonkeyPatch) -> Shift:
    """Sets this process's clock that many seconds ahead of the database's."""
    real = timezone.now

    def ahead(seconds: float) -> None:
        monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(seconds=seconds))

    return ahead


def claimed(team: Team) -> Run:
    run = make_run(team, queue=f"test-{uuid.uuid4()}")
    assert run.claim("there:1/a")
    return run


def near(moment: datetime | None, meant: timedelta = timedelta(0)) -> bool:
    return moment is not None and abs(moment - database_now() - meant) < SLACK


@pytest.mark.parametrize("seconds", SHIFTS)
def test_a_sweeper_with_a_wrong_clock_leaves_healthy_runs_alone_and_takes_lost_ones(team: Team, shift: Shift, seconds: float) -> None:
    healthy, lost = claimed(team), claimed(team)
    Run.across_teams.filter(pk=lost.pk).update(lease_until=Now() - timedelta(seconds=1))
    shift(seconds)
    Sweeper().sweep()
    healthy.refresh_from_db()
    lost.refresh_from_db()
    assert (healthy.status, healthy.owner, lost.status, lost.owner) == ("starting", "there:1/a", "lost", "")
    assert not healthy.lose()


@pytest.mark.parametrize("seconds", SHIFTS)
def test_a_worker_with_a_wrong_clock_holds_a_lease_as_long_as_any(team: Team, shift: Shift, seconds: float) -> None:
    shift(seconds)
    run = claimed(team)
    length = timedelta(seconds=settings.LEASE_SECONDS)
    assert near(run.lease_until, length)
    assert near(run.started_at)
    assert near(run.progress_at)
    assert run.renew("there:1/a")
    run.refresh_from_db()
    assert near(run.lease_until, length)
    assert live.describe_run_state(run)["stalled_seconds"] is None
    run.hand_back("there:1/a", "left")
    assert near(run.queued_at)


@pytest.mark.parametrize("seconds", SHIFTS)
def test_a_message_is_missed_by_the_databases_clock(team: Team, shift: Shift, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr("lab.supervision.supervisor.sweeper.send_again", lambda runs: sent.extend(run.pk for run in runs))
    shift(seconds)
    fresh, overdue = make_run(team), make_run(team)
    assert near(Run.across_teams.get(pk=fresh.pk).queued_at)
    Run.across_teams.filter(pk=overdue.pk).update(queued_at=Now() - 2 * OVERDUE)
    Sweeper().sweep()
    assert sent == [overdue.pk]


@pytest.mark.parametrize("seconds", SHIFTS)
def test_hours_are_counted_by_the_databases_clock(team: Team, shift: Shift, seconds: float) -> None:
    run = claimed(team)
    ledger.open_lease(run, "w/1", 1)
    shift(seconds)
    ledger.refresh_leases("w/1")
    ledger.close_leases("w/1")
    ledger.open_lease(run, "w/2", 1)
    for lease in Lease.across_teams.all():
        assert near(lease.started_at)
        assert near(lease.seen_at)


@pytest.mark.parametrize("seconds", SHIFTS)
def test_workers_are_alive_by_the_databases_clock(shift: Shift, seconds: float) -> None:
    here = heartbeat.register_worker("here", ["gpu"])
    Worker.objects.filter(pk=here.pk).update(host="elsewhere", pid=1)
    gone = Worker.objects.create(name="gone", host="elsewhere", pid=2, queues=["gpu"])
    Worker.objects.filter(pk=gone.pk).update(seen_at=Now() - timedelta(minutes=10))
    shift(seconds)
    other = heartbeat.register_worker("wrong clock", ["gpu"])
    Heartbeat(other).beat()
    assert [(worker.name, worker.is_alive) for worker in listing.list_recent_workers()] == [("here", True), ("wrong clock", True), ("gone", False)]
    assert set(Worker.objects.alive().values_list("name", flat=True)) == {"here", "wrong clock"}
    other.refresh_from_db()
    assert near(other.seen_at)
    with pytest.raises(Refusal):
        heartbeat.register_worker("here", ["gpu"])
    assert heartbeat.register_worker("gone", ["gpu"]).pk == gone.pk


@pytest.mark.parametrize("seconds", SHIFTS)
def test_questions_samplings_and_builds_are_lost_by_the_databases_clock(team: Team, owner: User, shift: Shift, seconds: float) -> None:
    replay = Replay.objects.create(team=team, run=make_run(team), step=1, base={"name": "grpo", "config": {}})
    sampling = Sampling.objects.create(team=team, user=owner, prompt=[])
    version = Version.objects.create(dataset=Dataset.objects.create(team=team, name="d", form="preference"), number=1)
    assert replay.claim()
    assert sampling.claim()
    assert version.claim()
    shift(seconds)
    assert (Replay.across_teams.lose(), Sampling.across_teams.lose(), Version.across_teams.requeue()) == (0, 0, 0)
    assert sampling.beats()
    assert version.beat(1)
    shift(0)
    for model, field in ((Sampling, "beat"), (Version, "beat_at")):
        assert near(getattr(model.across_teams.get(), field))
    Replay.across_teams.update(started_at=Now() - timedelta(hours=1))
    Sampling.across_teams.update(beat=Now() - timedelta(hours=1))
    Version.across_teams.update(beat_at=Now() - timedelta(hours=1))
    shift(seconds)
    assert (Replay.across_teams.lose(), Sampling.across_teams.lose(), Version.across_teams.requeue()) == (1, 1, 1)
    assert (Replay.across_teams.get().status, Sampling.across_teams.get().status) == (ReplayStatus.FAILED, SamplingStatus.FAILED)
    assert Version.across_teams.get().state == VersionState.QUEUED


def test_an_outside_run_is_heard_by_the_databases_clock(team: Team, shift: Shift) -> None:
    run = make_run(team, status=Status.RUNNING, owner="outside", outside=True)
    shift(-86_400)
    assert run.heard("outside", 600)
    assert not Run.across_teams.expired().filter(pk=run.pk).exists()
    shift(86_400)
    run.refresh_from_db()
    assert not run.lose()
