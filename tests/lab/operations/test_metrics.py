"""/metrics: numbers of rows, behind a token of the installation's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models.functions import Now
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from lab.edges.api import tokens
from lab.edges.operations import machine_figures, metrics
from lab.lib import readiness
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from lab.training.workers.models import Worker
from tests.lab.supervisor.spools import make_run, rollout, started, store

pytestmark = pytest.mark.django_db
TOKEN = "a token of these tests"


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN
    monkeypatch.setattr(metrics, "text", metrics.MetricsText())
    monkeypatch.setattr(readiness, "probe", readiness.ReadinessProbe(readiness.ask_database, readiness.ask_redis))


def ask(client: Client, token: str = TOKEN) -> Any:
    return client.get("/metrics", headers={"Authorization": f"Bearer {token}"})


def read_numbers(client: Client) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric → values of its labels → number; also metrics without a number."""
    response = ask(client)
    assert response.status_code == 200, response.content
    families = text_string_to_metric_families(response.content.decode())
    return {family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples} for family in families}


def test_without_a_token_of_the_installation_there_is_no_such_address(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN = ""
    assert ask(client).status_code == 404
    assert ask(client, "").status_code == 404


def test_only_the_installations_token_opens_it(client: Client, as_owner: Client, team: Team, owner: User) -> None:
    secret = tokens.create_access_token(team, owner, "curious", ["runs.read"], None)[1]
    for given in ("", "wrong", secret, TOKEN + "x", TOKEN[:-1], "\xff"):
        response = ask(client, given)
        assert (response.status_code, response["WWW-Authenticate"][:6]) == (401, "Bearer"), given
    assert as_owner.get("/metrics").status_code == 401
    assert as_owner.get("/metrics", {"token": TOKEN}).status_code == 401
    assert client.get("/metrics", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401
    response = ask(client)
    assert response.status_code == 200
    assert response["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "no-store" in response["Cache-Control"]
    assert client.post("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 405


def test_an_empty_lab_has_all_metrics_and_nothing_failed(client: Client) -> None:
    numbers = read_numbers(client)
    assert len(numbers) == 25
    assert set(numbers["lab_metrics_failed"].values()) == {0}
    assert numbers["lab_database_up"] == numbers["lab_redis_up"] == {(): 1}
    assert numbers["lab_workers"] == {(state,): 0 for state in metrics.WORKER_STATES}
    assert numbers["lab_database_size_bytes"][()] > 1_000_000
    assert 0 < numbers["lab_database_connections"][()] <= numbers["lab_database_connections_limit"][()]
    assert numbers["lab_redis_memory_bytes"][()] > 10_000


def test_runs_queues_and_workers_are_counted(client: Client, team: Team) -> None:
    waiting, failed, old = make_run(team), make_run(team), make_run(team)
    Run.objects.filter(team=team, pk=waiting.pk).update(status=Status.QUEUED, owner="", queued_at=Now() - timedelta(minutes=10))
    Run.objects.filter(team=team, pk=failed.pk).update(status=Status.FAILED, finished_at=Now() - timedelta(hours=1))
    Run.objects.filter(team=team, pk=old.pk).update(status=Status.FAILED, finished_at=Now() - timedelta(hours=30))
    worker = {"host": "here", "pid": 1, "queues": ["gpu"]}
    Worker.objects.create(name="one", **worker)
    Worker.objects.create(name="two", **{**worker, "queues": ["gpu", "analysis"]})
    Worker.objects.create(name="drained", takes_runs=False, **worker)
    Worker.objects.create(name="leaving", draining=True, **worker)
    Worker.objects.create(name="lost", seen_at=Now() - timedelta(minutes=5), **worker)
    numbers = read_numbers(client)
    assert numbers["lab_runs"] == {("gpu", "queued"): 1, ("gpu", "failed"): 2}  # the reader orders labels by their names
    assert numbers["lab_runs_failed_day"] == {(): 1}
    assert numbers["lab_queue_waiting"] == {("gpu",): 1, ("analysis",): 0}
    assert numbers["lab_queue_oldest_wait_seconds"][("gpu",)] == pytest.approx(600, abs=30)
    assert numbers["lab_queue_workers"] == {("gpu",): 2, ("analysis",): 1}
    assert numbers["lab_workers"] == {("ready",): 2, ("drained",): 1, ("leaving",): 1, ("lost",): 1}
    assert numbers["lab_worker_unseen_seconds"][("lost",)] == pytest.approx(300, abs=30)
    assert numbers["lab_worker_unseen_seconds"][("one",)] < 30


def test_what_the_database_lacks_of_a_spool_is_the_lag(client: Client, team: Team) -> None:
    run = make_run(team)
    store(run, started(), rollout(1, 0, 0), rollout(1, 0, 1))
    Run.objects.filter(team=team, pk=run.pk).update(status=Status.RUNNING, progress_at=Now() - timedelta(seconds=90))
    before = read_numbers(client)
    assert (before["lab_rollouts_stored"][()], before["lab_ingest_lag_bytes"][()]) == (2, 0)
    assert before["lab_events_stored_bytes"][()] == machine_figures.measure_spool_size(run)
    assert before["lab_runs_silent_seconds"][()] == pytest.approx(90, abs=30)
    with (run.folder / "events.jsonl").open("ab") as spool:
        spool.write(b"x" * 5000)
    metrics.text.kept = None
    after = read_numbers(client)
    assert after["lab_ingest_lag_bytes"] == after["lab_ingest_lag_worst_bytes"] == {(): 5000}


def test_nothing_says_whose_a_run_is_and_queries_are_few(client: Client, team: Team, owner: User, django_assert_max_num_queries: Any) -> None:
    run = make_run(team)
    Run.objects.filter(team=team, pk=run.pk).update(name="a name nobody else may read", status=Status.RUNNING)
    with django_assert_max_num_queries(45):  # ten, and for each of eight parts a savepoint, its release and the limit
        body = ask(client).content.decode()
    for word in (team.name, team.slug, owner.email, "a name nobody", str(run.pk)):
        assert word not in body
    assert set(re.findall(r"[{,](\w+)=", body)) <= {"status", "queue", "state", "worker", "kind", "folder", "part"}
    with django_assert_max_num_queries(0):
        assert ask(client).content.decode() == body  # of many who ask within five seconds one reads


def test_a_part_that_fails_is_named_and_costs_no_other(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")

    monkeypatch.setattr(metrics, "STATEMENT_SECONDS", 0.1)
    monkeypatch.setitem(metrics.DATABASE_PARTS, "totals", slow)
    monkeypatch.setattr(machine_figures, "measure_disk", lambda folder: (_ for _ in ()).throw(OSError("gone")))
    numbers = read_numbers(client)
    assert {name for (name,), failed in numbers["lab_metrics_failed"].items() if failed} == {"totals", "disks"}
    assert "lab_rollouts_stored" not in numbers
    assert "lab_storage_bytes" in numbers


def test_without_the_database_it_still_answers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> dict[str, str]:
        raise OSError("no route")

    monkeypatch.setattr(readiness, "probe", readiness.ReadinessProbe(gone, gone))
    numbers = read_numbers(client)
    assert numbers["lab_database_up"] == numbers["lab_redis_up"] == {(): 0}
    assert {name for (name,), failed in numbers["lab_metrics_failed"].items() if failed} == set(metrics.DATABASE_PARTS)
    assert "lab_runs" not in numbers
    assert numbers["lab_disk_free_bytes"][("LAB_HOME",)] > 0


def test_a_database_that_goes_away_in_between_is_no_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(metrics.transaction, "atomic", away)
    assert read_numbers(client)["lab_metrics_failed"][("runs",)] == 1


@pytest.mark.django_db(transaction=True)
def test_the_limit_of_a_statement_ends_with_the_reading(client: Client) -> None:
    ask(client)
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone()[0] != f"{metrics.STATEMENT_SECONDS}s"


def test_a_token_that_could_be_guessed_stops_the_start() -> None:
    code = "import lab.settings"
    for token, complaint in (("short", "LAB_METRICS_TOKEN must be 20 or more"), ("0123456789abcdef0123", "")):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "LAB_METRICS_TOKEN": token}, capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == (not complaint)
        assert complaint in done.stderr
