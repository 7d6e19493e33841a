"""Queues whose workers a command starts: how many are wanted, what the command may know, what is kept of it, and a worker that comes and goes."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from lab.lib.processes import wait_for
from lab.lib.start_commands import StartCommand, parse_start_commands
from lab.supervision.supervisor import worker_starts
from lab.supervision.supervisor.worker_starts import book_starts, list_startable_runs, start_wanted_workers
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.training.runs.placement import list_usable_queues
from lab.training.runs.wait_reasons import find_waiting_reasons
from lab.training.workers.gpus import Gpu
from lab.training.workers.heartbeat import register_worker
from lab.training.workers.models import Worker, WorkerStart
from lab.watching.usage.models import Quota
from tests.conftest import make_member
from tests.lab.accounts.signing_in import give_app
from tests.lab.supervisor.claiming import claim_run
from tests.lab.supervisor.spools import make_run

Command = Callable[..., StartCommand]


@pytest.fixture
def command(settings: Any) -> Command:
    """Sets the command of the queue ``large``."""

    def set_command(*words: str, **fields: Any) -> StartCommand:
        start = StartCommand("large", words or ("true",), **{"most": 2} | fields)
        settings.WORKER_STARTS = {"large": start}
        return start

    return set_command


def test_the_setting_is_read_and_a_mistake_is_named() -> None:
    assert parse_start_commands("") == {}
    read = parse_start_commands('{"a": {"command": ["sbatch", "x"], "most": 8, "gpus": 4, "patience": 7200, "environment": ["TOKEN"]}}')
    assert read["a"] == StartCommand("a", ("sbatch", "x"), 8, 4, 7200, ("TOKEN",))
    for text, words in (
        ("{", "no JSON"),
        ("[]", "must be an object"),
        ('{"a b": {}}', "not the name of a queue"),
        ('{"a": {"comand": []}}', "give an object with command"),
        ('{"analysis": {"command": ["x"]}}', "no run waits"),
        ('{"a": {"command": "sbatch x"}}', "must be a list of words"),
        ('{"a": {"command": ["x"], "most": 0}}', "most must be a whole number"),
        ('{"a": {"command": ["x"], "gpus": true}}', "gpus must be a whole number"),
        ('{"a": {"command": ["x"], "environment": [1]}}', "environment must be a list"),
    ):
        with pytest.raises(ValueError, match=words):
            parse_start_commands(text)


@pytest.mark.django_db
def test_a_worker_is_started_for_each_run_that_no_free_worker_takes_up_to_the_most(team: Team, command: Command) -> None:
    command()
    start_wanted_workers()
    assert not WorkerStart.objects.exists()  # nothing waits
    runs = [make_run(team, queue="large") for _ in range(4)]
    make_run(team, queue="gpu")
    register_worker("free", ["large"])
    for count in (1, 1):  # one free worker, three more wanted, two at once at most
        start_wanted_workers()
        assert WorkerStart.objects.count() == count
    Worker.objects.update(draining=True)
    Worker.objects.update(seen_at=Now() - timedelta(minutes=1))
    start_wanted_workers()
    assert WorkerStart.objects.coming().count() == 2
    register_worker("came", ["large"])
    assert sorted(WorkerStart.objects.values_list("worker", flat=True)) == ["", "came"]
    assert claim_run(runs[0], "came/1", "came")
    start_wanted_workers()
    assert WorkerStart.objects.count() == 2  # one trains, one is coming: the most
    WorkerStart.objects.coming().update(expected_until=Now())  # it never came
    start_wanted_workers()
    assert WorkerStart.objects.count() == 3


@pytest.mark.django_db
def test_no_worker_is_started_for_a_run_that_is_too_large_for_it(team: Team, command: Command) -> None:
    start = command(gpus=2)
    larger = make_run(team, queue="large", spec={"resources": {"processes": 4}})
    start_wanted_workers()
    assert not WorkerStart.objects.exists()
    assert find_waiting_reasons([larger])[larger.pk].why == "no worker for large with 4 GPUs"
    register_worker("small", ["large"], [Gpu(0, "NVIDIA L4", 1)])
    two = make_run(team, queue="large", spec={"resources": {"processes": 2}})
    make_run(team, queue="large")
    assert worker_starts.count_unserved(start) == 1  # the one of two; the small worker takes the other
    start_wanted_workers()
    assert WorkerStart.objects.count() == 1
    reasons = find_waiting_reasons([two, larger])
    assert (reasons[two.pk].why, reasons[larger.pk].kind) == ("a worker for large is being started", "size")
    WorkerStart.objects.update(expected_until=Now())
    assert find_waiting_reasons([two])[two.pk].why == "the worker that was started for large did not come; another is to be started"


@pytest.mark.django_db
def test_no_more_workers_are_started_than_a_quota_lets_runs_train(team: Team, command: Command) -> None:
    limit = Quota.objects.create(team=team, concurrent_runs=0)
    runs = [make_run(team, queue="large") for _ in range(3)]
    assert list_startable_runs("large") == []
    limit.concurrent_runs = 2
    limit.save()
    assert list_startable_runs("large") == runs[:2]
    assert claim_run(runs[1], "elsewhere/1", "elsewhere")
    assert list_startable_runs("large") == runs[:1]


@pytest.mark.django_db
def test_a_start_whose_worker_died_before_it_ended_is_not_waited_for(team: Team, command: Command) -> None:
    start = command()
    make_run(team, queue="large")
    (booked,) = book_starts([start])
    assert book_starts([start]) == []
    WorkerStart.objects.filter(pk=booked.pk).update(started_at=Now() - timedelta(minutes=3))
    assert WorkerStart.objects.judged().get().outcome == "interrupted"
    assert len(book_starts([start])) == 1


@pytest.mark.django_db
def test_of_two_workers_that_look_one_decides(team: Team, command: Command) -> None:
    start = command()
    make_run(team, queue="large")
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [worker_starts.LOCK])
            assert book_starts([start]) == []
            cursor.execute("SELECT pg_advisory_unlock(%s)", [worker_starts.LOCK])
    finally:
        other.close()
    assert len(book_starts([start])) == 1


@pytest.mark.django_db
def test_a_command_that_fails_is_shown_and_tried_again_later(team: Team, command: Command, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = User.objects.create_superuser("operator@example.org", "correct horse battery")
    Membership.objects.create(team=team, user=operator, role=Role.ADMIN)
    give_app(operator)
    client.force_login(operator)
    monkeypatch.setenv("MY_TOKEN", "of-the-scheduler-1234")
    says = 'echo "queue $LAB_QUEUE, token ${MY_TOKEN:-none}, key ${SECRET_KEY:-none}, database ${DATABASE_URL:-none}"'
    script = f'{says}; echo "no such partition" >&2; exit 3'
    command("sh", "-c", script)
    run = make_run(team, queue="large")
    assert find_waiting_reasons([run])[run.pk].why == "a worker for large is to be started"
    assert list_usable_queues(team) == ["gpu", "large"]
    start_wanted_workers()
    start = WorkerStart.objects.judged().get()
    assert (start.exit_code, start.state) == (3, "failed")
    assert start.output == "queue large, token none, key none, database none\nno such partition"
    assert find_waiting_reasons([run])[run.pk].why == "the command that starts workers for large failed"
    start_wanted_workers()
    assert WorkerStart.objects.count() == 1
    assert "no such partition" in client.get("/admin/workers/workerstart/").content.decode()
    page = client.get("/workers/").content.decode()
    assert "The start command failed with exit code 3" in page
    assert "no such partition" in page
    client.force_login(make_member("member@example.org", team))
    assert "no such partition" not in client.get("/workers/").content.decode()
    client.force_login(operator)
    assert "token none" in client.get(f"/admin/workers/workerstart/{start.pk}/change/").content.decode()
    WorkerStart.objects.update(ended_at=Now() - timedelta(seconds=31))
    command("sh", "-c", script, environment=("MY_TOKEN",))
    start_wanted_workers()
    assert "token [secret]" in WorkerStart.objects.order_by("-started_at")[0].output  # the command had it; what is kept of it does not
    WorkerStart.objects.update(ended_at=Now() - timedelta(seconds=31))
    start_wanted_workers()
    assert WorkerStart.objects.count() == 2  # twice as long after the second failure
    WorkerStart.objects.all().delete()
    command("/nowhere/sbatch")
    start_wanted_workers()
    start = WorkerStart.objects.get()
    assert (start.exit_code, "cannot be run" in start.output) == (None, True)


@pytest.mark.django_db
def test_a_command_that_does_not_end_is_killed(team: Team, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_starts, "COMMAND_SECONDS", 0.2)
    command("sh", "-c", "echo asked; exec sleep 60")
    make_run(team, queue="large")
    start_wanted_workers()
    assert WorkerStart.objects.get().output == "asked\nit did not end within 0.2 s and was killed"


@pytest.mark.django_db
def test_a_command_may_leave_the_worker_behind(team: Team, command: Command, tmp_path: Path) -> None:
    """As ``nohup … &`` and a scheduler do: it is not waited for, and not killed."""
    left, go = tmp_path / "left", tmp_path / "go"
    os.mkfifo(go)
    command("sh", "-c", f"(read line < {go}; echo $LAB_GPUS > {left}.new; mv {left}.new {left}) & echo submitted job 17", gpus=4)
    run = make_run(team, queue="large")
    start_wanted_workers()
    start = WorkerStart.objects.judged().get()
    assert (start.exit_code, start.output, start.outcome) == (0, "submitted job 17", "waiting for its worker")
    assert find_waiting_reasons([run])[run.pk].why == "a worker for large is being started"
    go.write_text("go\n")
    assert wait_for(left.exists, 10)
    assert left.read_text() == "4\n"
    register_worker("came", ["large"])
    assert WorkerStart.objects.judged().get().outcome == "its worker came"
    assert find_waiting_reasons([run])[run.pk].why == "queue position 1"
