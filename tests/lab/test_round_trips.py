"""How often a page or an act asks the database, one after the other: with 500 ms between the two, twenty times are ten seconds."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.teams.accounts.models import Team, User
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Checkpoint, Run, Status
from lab.training.workers.models import Worker
from tests.lab.api.conftest import client_of
from tests.lab.labels.queues import pair_queue
from tests.lab.supervisor.spools import rollout, store

GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "recipe": "grpo"}
MOST = 16  # round trips; a transaction's begin and end are one each
PAGES = ("/runs/", "/rollouts/", "/queue/", "/workers/", "/policies/", "/", "/api/v1/runs?limit=5")
RUN_PAGES = ("", "rollouts/", "logs/", "metrics.json")


@pytest.fixture
def runs(team: Team, owner: User) -> list[Run]:
    """One in each state that a list tells apart, with a checkpoint; a worker; rollouts of the one that runs."""
    Worker.objects.create(name="w", host="h", pid=1, queues=["gpu"], takes_runs=True, seen_at=timezone.now())
    made = [launch_run(team, owner, GRPO, f"run {status}") for status in Status]
    for run, status in zip(made, Status, strict=True):
        Run.across_teams.filter(pk=run.pk).update(status=status, step=5, started_at=timezone.now())
        Checkpoint.objects.create(run=run, attempt=1, step=5, path="checkpoints/checkpoint-5", bytes=1, created_at=timezone.now())
    running = made[list(Status).index(Status.RUNNING)]
    store(running, *(rollout(step, group, sample) for step in (1, 2) for group in (0, 1) for sample in range(4)))
    Run.across_teams.filter(pk=running.pk).update(progress_at=timezone.now(), total_steps=10)
    return made


def count_round_trips(ask: Any) -> int:
    ask()  # what a process keeps is kept
    with CaptureQueriesContext(connection) as queries:
        answer = ask()
    assert answer.status_code in (200, 201, 302), answer.content[:300]
    return sum(3 if one["sql"].startswith("DECLARE") else 1 for one in queries.captured_queries)  # declare, fetch, close


def test_no_page_asks_too_often(runs: list[Run], as_owner: Client) -> None:
    paths = [*PAGES[:-1], *(f"/runs/{run.pk}/{page}" for run in runs for page in RUN_PAGES)]
    trips = {path: count_round_trips(lambda path=path: as_owner.get(path)) for path in paths}
    assert {path: count for path, count in trips.items() if count > MOST} == {}


def test_a_launch_and_a_list_by_the_api_do_not_either(runs: list[Run], team: Team, owner: User) -> None:
    api = client_of(team, owner)
    body = {"recipe": "grpo", "overrides": {"policy": {"kind": "tiny"}}, "check": False}
    assert count_round_trips(lambda: api.post("/api/v1/runs", body, content_type="application/json")) <= MOST
    assert count_round_trips(lambda: api.get(PAGES[-1])) <= MOST


def test_labelling_does_not_either(team: Team, as_owner: Client) -> None:
    queue = pair_queue(team, 6)

    def claim() -> Any:
        return as_owner.post(f"/label/{queue.pk}/next/", {"hold": 1}, content_type="application/json")

    def submit() -> Any:
        sent = {"token": claim().json()["claims"][0]["token"], "key": str(uuid.uuid4()), "seconds": 1.0, "answer": {"choice": "1"}}
        return as_owner.post(f"/label/{queue.pk}/submit/", sent, content_type="application/json")

    first = submit()
    assert first.status_code == 200
    with CaptureQueriesContext(connection) as queries:
        claim()  # takes a seat
    assert len(queries) <= MOST
    with CaptureQueriesContext(connection) as queries:
        assert submit().status_code == 200  # and claims, which sees that the seat is held
    assert len(queries) <= 2 * MOST
    while claim().json()["claims"]:
        submit()
    assert count_round_trips(claim) <= MOST  # there is nothing left, and it says why
