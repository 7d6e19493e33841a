"""The supervisor with real processes: a small trainer that keeps the contract, a real database and a real Redis."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from django.db import connection

from lab.supervision.supervisor import supervise as supervise_module
from lab.supervision.supervisor import trainer_process
from lab.supervision.supervisor.supervise import run_supervisor
from lab.teams.accounts.models import Team
from lab.training.runs import metrics
from lab.training.runs.models import LogChunk, Run, Status
from lab.training.workers.models import Worker
from tests.lab.supervisor.driver import PROGRAM
from tests.lab.supervisor.spools import assert_database_equals_spool, make_run, started, steps, write
from trainers.contract import spool
from trainers.contract.events import AttemptStarted

pytestmark = pytest.mark.django_db(transaction=True)
DRIVER = str(Path(__file__).with_name("driver.py"))
LONG = {"steps": 400, "pace": 0.03}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs whose message was sent to the workers, in order."""
    names: list[str] = []
    monkeypatch.setattr(supervise_module, "enqueue_run", lambda run: names.append(run.name))
    return names


@pytest.fixture
def launch(team: Team, sent: list[str]) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(**spec: Any) -> Run:
        runs.append(make_run(team, spec=spec))
        return runs[-1]

    yield make
    for run in runs:  # a test that failed half-way must leave no process behind
        if (pid := trainer_process.lock_holder(run.folder)) is not None:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def in_background() -> Iterator[Callable[[Run], threading.Thread]]:
    threads: list[threading.Thread] = []

    def begin(run: Run, worker: str = "here:1") -> threading.Thread:
        def work() -> None:
            try:
                run_supervisor(str(run.pk), worker, PROGRAM)
            finally:
                connection.close()

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        return threads[-1]

    yield begin
    Run.across_teams.update(kill_requested=True)
    for thread in threads:
        thread.join(30)


def wait_for(run: Run, condition: Callable[[Run], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        run.refresh_from_db()
        if condition(run):
            return
        time.sleep(0.03)
    raise AssertionError(f"after {seconds} s: {run.status} {run.reason!r}, step {run.step}, {run.ingested} bytes stored")


def attempts(run: Run) -> list[int]:
    return [line.event.attempt for line in spool.read_spool_lines(run.folder / spool.SPOOL, 0, 1 << 30) if isinstance(line.event, AttemptStarted)]


def holder(run: Run) -> int:
    pid = trainer_process.lock_holder(run.folder)
    assert pid is not None
    return pid


def log_text(run: Run) -> str:
    return "".join(LogChunk.objects.filter(run=run, notice=False).values_list("text", flat=True))


def test_a_run_is_trained_stored_and_finished(launch: Callable[..., Run]) -> None:
    run = launch(steps=12)
    assert run_supervisor(str(run.pk), "here:1", PROGRAM)
    assert_database_equals_spool(run)
    assert (run.status, run.reason, run.exit_code, run.step, run.attempt) == ("finished", "", 0, 12, 1)
    assert (run.owner, run.lease_until) == ("", None)
    assert run.rollouts == 12 * 8
    assert log_text(run) == (run.folder / "attempt-1.log").read_text()
    assert "step 12\n" in log_text(run)
    assert "system/memory_bytes" in metrics.list_metric_names(run.pk)
    assert (run.folder / "run.json").exists()
    assert not (run.folder / "stop").exists()


def test_the_trainer_is_told_no_secrets(launch: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    run = launch(steps=1)
    run_supervisor(str(run.pk), "here:1", PROGRAM)
    assert "secrets: []" in log_text(run)


def test_a_finished_run_wakes_the_stages_that_waited_for_it(launch: Callable[..., Run], sent: list[str]) -> None:
    run, child = launch(steps=1), launch(steps=1)
    Run.across_teams.filter(pk=child.pk).update(parent=run, name="next stage")
    assert run_supervisor(str(child.pk), "here:1", PROGRAM)  # its message starts what is next: the run it waits for
    run.refresh_from_db()
    assert run.status == "finished"
    assert sent == ["next stage"]
    assert run_supervisor(str(child.pk), "here:1", PROGRAM)


def test_the_children_of_a_failed_run_stay_where_they_are(launch: Callable[..., Run], sent: list[str]) -> None:
    run, child = launch(steps=5, fail_at=2), launch(steps=1)
    Run.across_teams.filter(pk=child.pk).update(parent=run)
    run_supervisor(str(run.pk), "here:1", PROGRAM)
    run.refresh_from_db()
    assert (run.status, run.exit_code, run.reason) == ("failed", 1, "RuntimeError: the loss exploded")
    assert sent == []
    assert not run_supervisor(str(child.pk), "here:1", PROGRAM)


@pytest.mark.feature(85)
def test_a_stop_saves_and_resume_goes_on(launch: Callable[..., Run], in_background: Callable[[Run], threading.Thread]) -> None:
    run = launch(steps=40, pace=0.05)
    thread = in_background(run)
    wait_for(run, lambda run: run.status == "running" and run.step >= 3)
    assert run.request_stop()
    thread.join(20)
    run.refresh_from_db()
    assert (run.status, run.exit_code, run.stop_requested_at) == ("stopped", 3, None)
    assert not (run.folder / "stop").exists()
    stopped_at = run.step
    assert stopped_at < 40
    assert run.resume()
    assert run_supervisor(str(run.pk), "here:1", PROGRAM)
    assert_database_equals_spool(run)
    assert (run.status, run.step, run.attempt) == ("finished", 40, 2)
    assert run.attempts.get(number=2).from_step == stopped_at
    assert run.rollouts == 40 * 8


def test_a_stop_that_is_not_heard_becomes_a_kill(launch: Callable[..., Run], in_background: Callable[[Run], threading.Thread], settings: Any) -> None:
    settings.STOP_GRACE_SECONDS = 0.5
    run = launch(**LONG, deaf=True)
    thread = in_background(run)
    wait_for(run, lambda run: run.step >= 2)
    run.request_stop()
    thread.join(20)
    assert_database_equals_spool(run)
    assert run.status == "stopped"
    assert "did not stop within 0.5 s" in run.reason
    assert not trainer_process.is_locked(run.folder)


@pytest.mark.feature(85)
def test_a_kill_takes_effect_at_once_and_on_everything_the_trainer_started(
    launch: Callable[..., Run], in_background: Callable[[Run], threading.Thread]
) -> None:
    run = launch(**LONG, deaf=True, children=2)
    thread = in_background(run)
    wait_for(run, lambda run: run.step >= 2)
    family = psutil.Process(holder(run)).children()
    assert len(family) == 2
    run.request_stop(kill=True)
    thread.join(5)
    assert not thread.is_alive()
    assert_database_equals_spool(run)
    assert (run.status, run.exit_code) == ("stopped", -signal.SIGKILL)
    assert run.reason.startswith("killed")
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_a_trainer_killed_from_outside_fails_the_run_in_words_and_is_resumed(
    launch: Callable[..., Run], in_background: Callable[[Run], threading.Thread]
) -> None:
    run = launch(steps=40, pace=0.03, save_every=1000)
    thread = in_background(run)
    wait_for(run, lambda run: run.step >= 12)
    os.kill(holder(run), signal.SIGKILL)
    thread.join(20)
    assert_database_equals_spool(run)
    assert (run.status, run.exit_code) == ("failed", -9)
    assert "SIGKILL" in run.reason
    assert "memory" in run.reason
    assert run.resume()
    assert run_supervisor(str(run.pk), "here:2", PROGRAM)
    assert_database_equals_spool(run)
    assert (run.status, run.step, run.attempt, run.rollouts) == ("finished", 40, 2, 320)
    assert run.samples.filter(superseded=True, attempt=1).count() >= 12 * 8  # without a checkpoint every step was done again


def test_a_trainer_that_counts_attempts_in_its_own_way_breaks_nothing(
    launch: Callable[..., Run], in_background: Callable[[Run], threading.Thread]
) -> None:
    run = launch(steps=30, pace=0.03, skip_attempts=4)
    thread = in_background(run)
    wait_for(run, lambda run: run.step >= 3)
    run.request_stop()
    thread.join(20)
    assert run.resume()
    assert run_supervisor(str(run.pk), "here:1", PROGRAM)
    assert_database_equals_spool(run)
    assert (run.status, run.attempt, run.rollouts) == ("finished", 10, 240)
    assert "step 30\n" in log_text(run)


def test_a_worker_that_drains_before_its_trainer_starts_hands_the_run_back(
    launch: Callable[..., Run], sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker.objects.create(name="here:8", host="here", pid=1)
    run = launch(steps=3)
    write(run.folder, [started(), *steps(1, 2)])
    monkeypatch.setattr(supervise_module.live, "publish_state", lambda run: Worker.objects.update(draining=True))
    run_supervisor(str(run.pk), worker.name, PROGRAM)
    run.refresh_from_db()
    assert (run.status, run.owner, attempts(run)) == ("queued", "", [1])
    assert sent == [run.name]


def test_a_run_stopped_before_its_trainer_starts_never_trains(launch: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = launch(**LONG)
    monkeypatch.setattr(
        trainer_process, "write_spec", lambda folder, spec: Run.across_teams.get(pk=run.pk).request_stop() and folder.mkdir(parents=True)
    )
    run_supervisor(str(run.pk), "here:1", PROGRAM)
    run.refresh_from_db()
    assert (run.status, run.reason, run.attempt) == ("stopped", "stopped before it started", 0)


def test_a_trainer_that_cannot_be_started_fails_the_run_with_the_reason(launch: Callable[..., Run]) -> None:
    run = launch(steps=1)
    run_supervisor(str(run.pk), "here:1", ["/nowhere/python"])
    run.refresh_from_db()
    assert run.status == "failed"
    assert "/nowhere/python" in run.reason


def test_a_refused_spec_fails_the_run_with_every_problem(launch: Callable[..., Run]) -> None:
    run = launch(steps=1)
    run_supervisor(str(run.pk), "here:1", [sys.executable, "-c", "import sys; print('a: no', 'b: no', sep='\\n', file=sys.stderr); sys.exit(2)"])
    run.refresh_from_db()
    assert (run.status, run.exit_code, run.reason) == ("failed", 2, "the specification was refused: a: no\nb: no")


def test_a_draining_worker_hands_its_run_back_saved(
    launch: Callable[..., Run], in_background: Callable[..., threading.Thread], sent: list[str]
) -> None:
    worker = Worker.objects.create(name="here:7", host="here", pid=1)
    run = launch(steps=60, pace=0.03)
    thread = in_background(run, worker.name)
    wait_for(run, lambda run: run.step >= 3)
    Worker.objects.update(draining=True)
    thread.join(20)
    assert_database_equals_spool(run)
    assert (run.status, run.owner, run.finished_at) == ("queued", "", None)
    assert "worker left" in run.reason
    assert sent == [run.name]
    assert not run_supervisor(str(run.pk), worker.name, PROGRAM)
    assert run_supervisor(str(run.pk), "there:1", PROGRAM)
    assert_database_equals_spool(run)
    assert (run.status, run.rollouts, run.attempt) == ("finished", 480, 2)


def test_two_workers_with_the_same_message_start_one_trainer(launch: Callable[..., Run], process_env: dict[str, str]) -> None:
    run = launch(steps=30, pace=0.05)
    workers = [start_supervisor(run, process_env, name) for name in ("one:1", "two:1")]
    said = sorted(worker.communicate(timeout=120)[0].strip() for worker in workers)
    assert said == ["claimed", "not claimed"]
    assert_database_equals_spool(run)
    assert (run.status, run.attempt, attempts(run)) == ("finished", 1, [1])


def test_a_killed_supervisor_is_followed_by_one_that_adopts_its_trainer(
    launch: Callable[..., Run], process_env: dict[str, str], in_background: Callable[[Run], threading.Thread]
) -> None:
    run = launch(steps=100, pace=0.04)
    supervisor = start_supervisor(run, process_env, "one:1")
    wait_for(run, lambda run: run.step >= 5)
    trainer = holder(run)
    supervisor.kill()
    supervisor.communicate()
    Run.across_teams.filter(pk=run.pk).update(status=Status.LOST, owner="", lease_until=None)  # as the sweeper does once the lease is over
    thread = in_background(run)
    wait_for(run, lambda run: run.status == "running")
    assert holder(run) == trainer
    thread.join(30)
    assert_database_equals_spool(run)
    assert (run.status, run.attempt, attempts(run)) == ("finished", 1, [1])
    assert log_text(run) == (run.folder / "attempt-1.log").read_text()


def test_an_adopted_trainer_that_is_killed_is_followed_by_another(
    launch: Callable[..., Run], process_env: dict[str, str], in_background: Callable[[Run], threading.Thread]
) -> None:
    run = launch(steps=60, pace=0.03)
    supervisor = start_supervisor(run, process_env, "one:1")
    wait_for(run, lambda run: run.step >= 7)
    supervisor.kill()
    supervisor.communicate()
    Run.across_teams.filter(pk=run.pk).update(status=Status.LOST, owner="", lease_until=None)
    thread = in_background(run)
    wait_for(run, lambda run: run.status == "running")
    os.kill(holder(run), signal.SIGKILL)
    thread.join(30)
    assert_database_equals_spool(run)
    assert (run.status, run.attempt, attempts(run)) == ("finished", 2, [1, 2])
    assert run.rollouts == 480


def test_a_run_that_finished_while_nobody_watched_is_not_trained_again(launch: Callable[..., Run]) -> None:
    run = launch(steps=5)
    trainer_process.write_spec(run.folder, run.spec)
    subprocess.run([*PROGRAM, str(run.folder / "run.json")], check=True, stdout=subprocess.DEVNULL)
    assert run_supervisor(str(run.pk), "here:1", PROGRAM)
    assert_database_equals_spool(run)
    assert (run.status, attempts(run)) == ("finished", [1])


def test_a_supervisor_whose_lease_was_taken_kills_its_trainer_and_touches_nothing(
    launch: Callable[..., Run], in_background: Callable[[Run], threading.Thread]
) -> None:
    run = launch(**LONG)
    thread = in_background(run)
    wait_for(run, lambda run: run.status == "running" and run.step >= 2)
    Run.across_teams.filter(pk=run.pk).update(owner="other/1", reason="taken")
    thread.join(10)
    assert not thread.is_alive()
    run.refresh_from_db()
    assert (run.status, run.owner, run.reason) == ("running", "other/1", "taken")
    assert not trainer_process.is_locked(run.folder)


def test_a_flushed_redis_in_mid_run_loses_nothing(
    launch: Callable[..., Run], in_background: Callable[[Run], threading.Thread], settings: Any
) -> None:
    run = launch(steps=40, pace=0.03)
    thread = in_background(run)
    wait_for(run, lambda run: run.step >= 5)
    redis.Redis.from_url(settings.REDIS_URL).flushall()
    thread.join(20)
    assert_database_equals_spool(run)
    assert (run.status, run.rollouts) == ("finished", 320)


def start_supervisor(run: Run, env: dict[str, str], worker: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, DRIVER, "supervise", str(run.pk), worker], env=env, stdout=subprocess.PIPE, text=True)
