"""The runs list: tenancy, filters and sorts out of the URL, why a run waits, and what it costs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psutil
import pytest
from django.db import connection, transaction
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.lib.clock import database_now
from lab.lib.sparkline import build_sparkline
from lab.teams.accounts.models import Team, User
from lab.training.runs import listing, metrics, wait_reasons
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Attempt, Run, Status
from lab.training.workers.machine_use import UseSampler, read_worker_uses
from lab.training.workers.models import Worker, WorkerUse

GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "recipe": "grpo"}

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(team: Team, owner: User) -> MakeRun:
    def make(name: str = "a run", spec: dict[str, Any] | None = None, by: User | None = None, parent: Run | None = None, **fields: Any) -> Run:
        run = launch_run(team, by or owner, spec or GRPO, name, parent=parent)
        Run.across_teams.filter(pk=run.pk).update(**fields)
        run.refresh_from_db()
        return run

    return make


def measured(run: Run, values: list[float], name: str = "reward") -> None:
    Attempt.objects.create(run=run, number=1, from_step=0, host="h", device="cpu", started_at=timezone.now())
    with transaction.atomic(), connection.cursor() as cursor:
        metrics.append_metric_points(cursor, run.pk, 1, {name: list(enumerate(values, start=1))})


def names(team: Team, url: str) -> list[str]:
    query = listing.read_query(QueryDict(url))
    return [run.name for run in listing.page_of(team, query)]


def test_it_needs_a_login(client: Client, db: None) -> None:
    assert client.get("/runs/").headers["Location"].startswith("/accounts/login/")


def test_another_team_sees_nothing_of_a_run(as_stranger: Client, make_run: MakeRun) -> None:
    make_run("secret run")
    page = as_stranger.get("/runs/").content.decode()
    assert "secret run" not in page
    assert "No runs yet" in page


def test_it_shows_a_run_with_its_numbers(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run("first", status=Status.RUNNING, step=75, latest={"reward": 0.4321, "entropy": 1.5, "tokens_per_second": 5321.0})
    page = as_owner.get("/runs/").content.decode()
    assert f'href="/runs/{run.pk}/"' in page
    for text in ('data-status="running"', "75/150", "0.432", "1.50", "5.3k", 'value="0.5000"'):
        assert text in page


def test_a_hostile_name_is_text(as_owner: Client, make_run: MakeRun) -> None:
    make_run("<script>alert(1)</script><img src=x onerror=alert(1)>")
    page = as_owner.get("/runs/").content.decode()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.feature(25)
@pytest.mark.parametrize("key", listing.SORTS)
def test_it_sorts_both_ways_by_every_allowed_key(key: str, team: Team, make_run: MakeRun, teammate: User) -> None:
    make_run(
        "b",
        spec={**GRPO, "recipe": "aa", "policy": {"kind": "hub", "name": "a/b"}},
        step=3,
        latest={"reward": 0.9, "entropy": 1, "tokens_per_second": 9},
    )
    make_run("a", spec={"task": {"name": "kb"}, "training": {"trainer": "sft"}, "recipe": "zz"}, by=teammate, status=Status.FINISHED, step=9)
    make_run("c", latest={"reward": 0.1, "entropy": 2, "tokens_per_second": 7}, step=5)
    up, down = names(team, f"sort={key}"), names(team, f"sort=-{key}")
    assert sorted(up) == sorted(down) == ["a", "b", "c"]
    assert up != down


def test_runs_without_a_value_come_last_both_ways(team: Team, make_run: MakeRun) -> None:
    make_run("none")
    make_run("low", latest={"reward": 0.1})
    make_run("high", latest={"reward": 0.9})
    assert names(team, "sort=reward") == ["low", "high", "none"]
    assert names(team, "sort=-reward") == ["high", "low", "none"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("status=failed", ["broken"]),
        ("status=open", ["new", "moving"]),
        ("status=ended", ["broken"]),
        ("recipe=other", ["moving"]),
        ("task=kb", ["moving"]),
        ("q=BROK", ["broken"]),
        ("q=%231", ["broken"]),
        ("q=kb&status=open", ["moving"]),
        ("q=nothing+like+this", []),
        ("q=%00broken", ["broken"]),
    ],
)
def test_it_filters_by_what_the_url_says(url: str, expected: list[str], team: Team, make_run: MakeRun) -> None:
    make_run("broken", status=Status.FAILED)
    make_run("moving", spec={"task": {"name": "kb"}, "training": {"trainer": "sft"}, "recipe": "other"}, status=Status.RUNNING)
    make_run("new")
    assert names(team, url) == expected


def test_it_filters_by_person(team: Team, make_run: MakeRun, owner: User, teammate: User) -> None:
    make_run("mine")
    make_run("theirs", by=teammate)
    assert names(team, f"who={teammate.pk}") == ["theirs"]


@pytest.mark.parametrize(
    "url", ["sort=spec", "sort=-created_by__password", "sort=", "sort=--age", "status=nope", "who=1;drop", "who=²", "page=0", "page=zz", "page=99999"]
)
def test_what_is_not_allow_listed_is_left_out_and_said(url: str, as_owner: Client, make_run: MakeRun) -> None:
    make_run("still here")
    response = as_owner.get(f"/runs/?{url}")
    assert response.status_code == 200
    assert "still here" in response.content.decode()
    if not url.startswith("page"):
        assert 'class="banner warn"' in response.content.decode()


def test_no_match_offers_to_clear_the_filters(as_owner: Client, make_run: MakeRun) -> None:
    make_run()
    page = as_owner.get("/runs/?q=zzz&status=failed").content.decode()
    assert "No results" in page
    assert 'href="?status=failed"' in page  # the chip of the text filter takes only the text away


def test_an_empty_team_is_offered_the_demo_as_one_button(as_owner: Client) -> None:
    page = as_owner.get("/runs/").content.decode()
    assert "No runs yet" in page
    assert 'action="/demo/"' in page


def test_htmx_gets_the_table_only_and_a_tidy_url(as_owner: Client, make_run: MakeRun) -> None:
    make_run("in the table")
    response = as_owner.get("/runs/?q=&status=open&recipe=&sort=-age", headers={"HX-Request": "true"})
    assert response.headers["HX-Push-Url"] == "/runs/?status=open"
    assert response.content.decode().strip().startswith('<div id="run-table"')


def test_rows_drawn_anew_where_they_stand_are_no_step_in_the_history(as_owner: Client, make_run: MakeRun) -> None:
    make_run()
    for there, pushed in (("/runs/?status=open", False), ("/runs/", True)):
        headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{there}"}
        assert ("HX-Push-Url" in as_owner.get("/runs/?status=open&page=1", headers=headers).headers) == pushed


def test_going_back_in_the_history_gets_the_whole_page(as_owner: Client, make_run: MakeRun) -> None:
    make_run()
    response = as_owner.get("/runs/", headers={"HX-Request": "true", "HX-History-Restore-Request": "true"})
    assert "<!doctype html>" in response.content.decode()


def test_the_number_of_queries_does_not_grow_with_the_rows(as_owner: Client, make_run: MakeRun) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            as_owner.get("/runs/")
        return len(captured)

    parent = make_run("parent", status=Status.RUNNING)
    measured(parent, [0.1, 0.5])
    make_run("child", spec={**GRPO, "policy": {"kind": "run", "run": str(parent.pk)}}, parent=parent)
    queries()  # the first request of a session also writes it down
    few = queries()
    for number in range(12):
        run = make_run(f"more {number}", status=Status.RUNNING if number % 2 else Status.QUEUED)
        measured(run, [0.1, 0.5, 0.3])
    queries()  # the settings of new runs are read once
    assert queries() == few


def test_it_pages_by_fifty(as_owner: Client, make_run: MakeRun) -> None:
    first = make_run("the first")
    for number in range(listing.PAGE):
        Run.objects.create(team=first.team, number=number + 2, name=f"run {number}", spec={}, recipe="r", trainer="sft", task="t", policy="p")
    assert "the first" not in as_owner.get("/runs/").content.decode()
    page = as_owner.get("/runs/?page=2").content.decode()
    assert "the first" in page
    assert "Page 2 of 2" in page


def test_a_curve_is_drawn_from_the_rewards(as_owner: Client, make_run: MakeRun) -> None:
    measured(make_run("learned", status=Status.FINISHED), [0.0, 0.5, 1.0])
    page = as_owner.get("/runs/").content.decode()
    assert '<polyline points="2.0,22.0 48.0,12.0 94.0,2.0"/>' in page
    assert "Reward from 0 to 1, lowest 0, highest 1" in page


def test_a_curve_breaks_where_a_value_is_not_finite() -> None:
    drawn = build_sparkline([1, 2, 3, 4, 5], [0.0, 1.0, float("nan"), float("inf"), 1.0])
    assert drawn is not None
    assert drawn.lines == ["2.0,22.0 25.0,2.0", "94.0,2.0"]
    assert build_sparkline([1, 2], [float("nan"), 1.0]) is None
    flat = build_sparkline([1, 2], [3.0, 3.0])
    assert flat is not None
    assert flat.lines == ["2.0,12.0 94.0,12.0"]


def alive(name: str, **fields: Any) -> Worker:
    return Worker.objects.create(name=name, host="host", pid=1, queues=["gpu"], **fields)


@pytest.mark.feature(4)
def test_a_queued_run_says_that_no_worker_is_there(as_owner: Client, make_run: MakeRun) -> None:
    make_run()
    assert "no worker for gpu: start one" in as_owner.get("/runs/").content.decode()


def test_a_worker_that_leaves_or_is_gone_serves_no_queue(make_run: MakeRun) -> None:
    run = make_run()
    alive("leaving", draining=True)
    alive("gone", seen_at=timezone.now() - timedelta(minutes=5))
    assert wait_reasons.find_waiting_reasons([run])[run.pk].kind == "worker"


@pytest.mark.feature(4)
def test_a_queued_run_knows_its_place(make_run: MakeRun) -> None:
    alive("ready")
    first, second, third = make_run("1"), make_run("2"), make_run("3")
    found = wait_reasons.find_waiting_reasons([third, first, second])
    assert [found[run.pk].why for run in (first, second, third)] == ["queue position 1", "queue position 2", "queue position 3"]


def test_a_next_stage_says_which_run_it_waits_for(make_run: MakeRun) -> None:
    alive("ready")
    parent = make_run("parent")
    child = make_run("child", spec={**GRPO, "policy": {"kind": "run", "run": str(parent.pk)}}, parent=parent)
    assert wait_reasons.find_waiting_reasons([child])[child.pk].why == "after #1"
    Run.across_teams.filter(pk=parent.pk).update(status=Status.FAILED)
    child = Run.across_teams.select_related("parent").get(pk=child.pk)
    assert wait_reasons.find_waiting_reasons([child])[child.pk].why == "#1 failed: resume it first"


def test_runs_that_do_not_wait_have_no_reason(make_run: MakeRun) -> None:
    assert wait_reasons.find_waiting_reasons([make_run(status=Status.RUNNING)]) == {}


@pytest.mark.feature(7)
def test_workers_show_the_teams_run_but_not_another_teams(as_owner: Client, as_stranger: Client, make_run: MakeRun) -> None:
    alive("box:1-a", gpu="NVIDIA H200", memory=128 << 30)
    make_run("in training", status=Status.RUNNING, owner="box:1-a/token")
    mine, theirs = as_owner.get("/workers/").content.decode(), as_stranger.get("/workers/").content.decode()
    assert "in training" in mine
    assert "NVIDIA H200" in mine
    assert "128 GiB" in mine
    assert "in training" not in theirs
    assert "a run of another team" in theirs


@pytest.mark.feature(7)
def test_workers_show_what_their_machines_did(as_owner: Client) -> None:
    worker = alive("box:1-a", gpu="NVIDIA H200", gpu_memory=100, memory=1000)
    now = database_now()
    for minutes, cpu, gpu in ((55, 80.0, 10.0), (30, 20.0, 30.0), (0, 40.0, 50.0)):
        WorkerUse.objects.create(worker=worker, at=now - timedelta(minutes=minutes), cpu_percent=cpu, memory=250, gpu_percent=gpu, gpu_memory=75)
    WorkerUse.objects.create(worker=worker, at=now - timedelta(hours=5), cpu_percent=100.0, memory=250)
    curves = read_worker_uses([worker], 1)[worker.pk]
    assert [(curve.name, curve.share) for curve in curves] == [("CPU", 40.0), ("memory", 25.0), ("GPU", 50.0), ("GPU memory", 75.0)]
    assert "CPU in percent from 80 to 40, lowest 20, highest 80" in as_owner.get("/workers/").content.decode()
    assert "CPU in percent from 100 to 40, lowest 20, highest 100" in as_owner.get("/workers/?hours=6").content.decode()


def test_a_worker_measures_its_machine_and_forgets_after_a_day(team: Team) -> None:
    worker = alive("box:1-a")
    WorkerUse.objects.create(worker=worker, at=database_now() - timedelta(hours=25), cpu_percent=1.0, memory=1)
    UseSampler(worker).store_use()
    [use] = WorkerUse.objects.all()
    assert 0 <= use.cpu_percent <= 100
    assert 0 < use.memory <= psutil.virtual_memory().total


def test_without_workers_the_page_says_how_to_start_one(as_owner: Client) -> None:
    page = as_owner.get("/workers/").content.decode()
    assert "No training worker is online" in page
    assert "manage.py worker --queues gpu" in page
