"""The queue page: who waits where and until when, what changing it answers, and who may."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.teams.accounts.models import Team
from lab.training.runs.models import Attempt, Run, Status
from lab.training.workers.models import Worker
from lab.watching.queue.forecast import forecast_queues
from lab.watching.queue.schedule import UNLIKE
from lab.watching.usage.models import Lease
from tests.conftest import make_member
from tests.lab.supervisor.spools import make_run

TINY = {"policy": {"kind": "tiny", "cold_start": True}, "device": "auto"}


def finish_run(team: Team, seconds: float, steps: int = 100, **fields: Any) -> Run:
    now = timezone.now()
    run = make_run(team, status=Status.FINISHED, step=steps, total_steps=steps, **{"spec": TINY, **fields})
    Attempt.objects.create(run=run, number=1, from_step=0, host="h", device="cpu (x86_64)", started_at=now)
    about = {"team": team, "run": run, "number": run.number, "owner": str(run.pk), "gpus": 0, "recipe": run.recipe}
    Lease.objects.create(**about, started_at=now - timedelta(seconds=seconds), seen_at=now, ended_at=now)
    return run


def queue_run(team: Team, **fields: Any) -> Run:
    return make_run(team, **{"spec": TINY, "total_steps": 200, **fields})


@pytest.fixture
def worker(db: None) -> Worker:
    return Worker.objects.create(name="box:1", host="h", pid=1, queues=["gpu"])


@pytest.mark.feature(4)
def test_times_are_steps_left_at_the_median_pace_behind_what_trains_now(team: Team, worker: Worker) -> None:
    for seconds in (50, 100, 400):
        finish_run(team, seconds)  # 0.5, 1 and 4 seconds a step
    finish_run(Team.objects.create(name="Other", slug="other"), 9000)
    latest = {"step_seconds": 2.0}
    trains = queue_run(team, status=Status.RUNNING, owner="box:1/a", step=170, latest=latest)  # 60 s to go
    first, second = queue_run(team, step=100), queue_run(team)
    limited = queue_run(team, spec={**TINY, "limits": {"minutes": 1}})
    stranger = queue_run(team, trainer="dpo")
    found = forecast_queues()
    assert found.ends[trains.pk] == 60
    known = [found.waiting[run.pk] for run in (first, second, limited)]
    assert [(pytest.approx(one.start), pytest.approx(one.end)) for one in known] == [(60, 160), (160, 360), (360, 420)]
    assert (found.waiting[stranger.pk].start, found.waiting[stranger.pk].unknown) == (pytest.approx(420), UNLIKE)


def test_a_drained_worker_is_not_counted_on(team: Team, worker: Worker) -> None:
    run = queue_run(team)
    assert forecast_queues().waiting[run.pk].start == 0
    Worker.objects.update(takes_runs=False)
    assert forecast_queues().waiting[run.pk].unknown == "unknown: no worker for gpu"


def test_the_page_shows_what_trains_what_waits_and_nothing_of_others(team: Team, worker: Worker, as_owner: Client) -> None:
    assert "No run is waiting or in training" in as_owner.get("/queue/").content.decode()
    finish_run(team, 3600)
    queue_run(team, name="in training", status=Status.RUNNING, owner="box:1/a", step=190, latest={"step_seconds": 3.0})
    first = queue_run(team, name="first")
    queue_run(team, name="its next stage", parent=first)
    other = Team.objects.create(name="Other", slug="other")
    queue_run(other, name="theirs", queue="elsewhere")
    page = as_owner.get("/queue/").content.decode()
    for words in ("in training", "in 30 s", "first", "in 2 h", "its next stage", f"after #{first.number}", "in 4 h", f"with #{first.number}"):
        assert words in page
    assert "theirs" not in page


def test_the_number_of_queries_does_not_grow_with_the_runs(team: Team, worker: Worker, as_owner: Client) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            as_owner.get("/queue/", headers={"HX-Request": "true"})
        return len(queries)

    finish_run(team, 100)
    queue_run(team)
    count()  # what a process remembers
    few = count()
    for _ in range(10):
        queue_run(team)
    assert count() == few


@pytest.mark.feature(5)
def test_changes_answer_with_words_and_the_queue_and_say_what_came_between(team: Team, worker: Worker, as_owner: Client) -> None:
    first, second = queue_run(team, name="first"), queue_run(team, name="second")
    moved = as_owner.post("/queue/change/", {"run": second.number, "act": "top"}, headers={"HX-Request": "true"})
    assert "to the top, before #1" in moved["HX-Trigger"]
    assert moved.content.decode().index("second") < moved.content.decode().index("first")
    assert as_owner.post("/queue/change/", {"run": first.number, "act": "priority", "priority": "1"}).status_code == 302
    assert first.claim("box:1/a")
    late = as_owner.post("/queue/change/", {"run": first.number, "act": "down"}, headers={"HX-Request": "true"})
    assert "#1 waits no longer: the worker box:1 has taken it. Nothing was changed." in late["HX-Trigger"]
    wrong = as_owner.post("/queue/change/", {"run": second.number, "act": "queue", "queue": "typo"}, headers={"HX-Request": "true"})
    assert "No worker serves the queue typo. Choose one of: gpu." in wrong["HX-Trigger"]
    assert [as_owner.post("/queue/change/", data).status_code for data in ({"run": "99", "act": "up"}, {"run": "2", "act": "x"})] == [404, 404]


@pytest.mark.feature(8)
def test_admins_drain_workers_only_while_nobody_else_is_served(team: Team, worker: Worker, as_owner: Client) -> None:
    admin, researcher = as_owner, Client()
    researcher.force_login(make_member("researcher@example.org", team))
    drain = {"worker": "box:1", "act": "drain"}
    assert "take no more runs" in admin.get("/workers/").content.decode().lower()
    assert "take no more runs" not in researcher.get("/workers/").content.decode().lower()
    assert researcher.post("/workers/drain/", drain).status_code == 403
    assert admin.post("/workers/drain/", drain).status_code == 302
    worker.refresh_from_db()
    assert not worker.takes_runs
    shown = admin.get("/workers/").content.decode()
    assert "drained" in shown
    assert "Take runs again" in shown
    Team.objects.create(name="Other", slug="other")
    refused = admin.post("/workers/drain/", {**drain, "act": "take"})
    assert (refused.status_code, "only operators" in refused.content.decode()) == (403, True)
    assert "Take runs again" not in admin.get("/workers/").content.decode()
