import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.db import connection
from django.utils import timezone

from lab.supervision.supervisor.sweeper import OVERDUE, Sweeper
from lab.teams.accounts.models import Team
from lab.training.runs.models import MAX_RESCUES, Run
from tests.lab.supervisor.spools import make_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def client(settings: Any) -> "redis.Redis":
    return redis.Redis.from_url(settings.REDIS_URL)


def claimed(team: Team, **fields: Any) -> Run:
    run = make_run(team, queue=f"test-{uuid.uuid4()}")
    assert run.claim("there:1/a")
    Run.across_teams.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1), **fields)
    return run


def waiting(team: Team, **fields: Any) -> Run:
    return make_run(team, queue=f"test-{uuid.uuid4()}", **{"queued_at": timezone.now() - 2 * OVERDUE, **fields})


def test_a_run_whose_lease_ran_out_is_lost_and_sent_to_another_worker(team: Team, client: "redis.Redis") -> None:
    run = claimed(team)
    Sweeper().sweep()
    run.refresh_from_db()
    assert (run.status, run.owner, run.rescues) == ("lost", "", 1)
    assert "there:1" in run.reason
    assert client.llen(run.queue) == 1


def test_a_run_with_a_lease_is_left_alone(team: Team) -> None:
    run = claimed(team)
    assert run.renew("there:1/a")
    Sweeper().sweep()
    run.refresh_from_db()
    assert run.status == "starting"


def test_a_run_lost_again_and_again_fails(team: Team, client: "redis.Redis") -> None:
    run = claimed(team, rescues=MAX_RESCUES)
    Sweeper().sweep()
    run.refresh_from_db()
    assert run.status == "failed"
    assert client.llen(run.queue) == 0


def test_a_lost_run_that_was_to_stop_is_stopped(team: Team) -> None:
    run = claimed(team, stop_requested_at=timezone.now(), status="stopping")
    Sweeper().sweep()
    run.refresh_from_db()
    assert run.status == "stopped"


def test_of_many_sweepers_one_loses_a_run(team: Team, client: "redis.Redis") -> None:
    run = claimed(team)

    def work() -> None:
        Sweeper().sweep()
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.refresh_from_db()
    assert (run.status, run.rescues) == ("lost", 1)
    assert client.llen(run.queue) == 1


def test_the_messages_of_a_flushed_redis_are_sent_again_once(team: Team, client: "redis.Redis") -> None:
    runs = [waiting(team), waiting(team)]
    sweeper = Sweeper()
    for _ in range(3):
        sweeper.sweep()
    assert [client.llen(run.queue) for run in runs] == [1, 1]
    client.flushall()
    sweeper.sweep()
    assert [client.llen(run.queue) for run in runs] == [1, 1]


def test_runs_that_just_came_or_wait_for_their_parent_are_not_sent(team: Team, client: "redis.Redis") -> None:
    parent = waiting(team)
    child, fresh = waiting(team, parent=parent), waiting(team, queued_at=timezone.now())
    Sweeper().sweep()
    assert [client.llen(run.queue) for run in (parent, child, fresh)] == [1, 0, 0]
    Run.across_teams.filter(pk=parent.pk).update(status="finished")
    Sweeper().sweep()
    assert client.llen(child.queue) == 1


def test_after_an_outage_of_the_database_owners_get_time_to_renew(team: Team, settings: Any) -> None:
    run = claimed(team)
    sweeper = Sweeper()
    sweeper.swept_at = 0.0  # long ago: the sweeps between failed
    sweeper.sweep()
    run.refresh_from_db()
    assert run.status == "starting"
    sweeper.forgiving_until = 0.0
    sweeper.sweep()
    run.refresh_from_db()
    assert run.status == "lost"


def test_a_sweep_over_nothing_costs_two_queries(team: Team, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(2):
        Sweeper().sweep()
