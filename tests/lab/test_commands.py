"""The commands as people run them: real processes, real services, exit codes and messages."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path

import psutil
import pytest
from celery import signals
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from rich.console import Console

from lab.celery import app
from lab.lib.processes import ManagedProcess, wait_for
from lab.teams.accounts.models import Team, User
from lab.training.runs import demo as demonstration
from lab.training.runs import metrics
from lab.training.runs.launch import launch_recipe
from lab.training.runs.local_lab import free_port
from lab.training.runs.models import Run, Status
from lab.training.runs.progress import follow_runs
from lab.training.workers import heartbeat, service
from lab.training.workers.models import ALIVE, Worker
from tests.conftest import make_member

ROOT = Path(__file__).resolve().parents[2]
Start = Callable[..., ManagedProcess]
QUICK = {
    "policy": {"kind": "tiny", "cold_start": False},
    "training": {
        "trainer": "grpo",
        "max_steps": 400,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 8,
        "prompts": 8,
    },
    "evaluation": {"prompts": 0},
    "limits": {"save_every": 5},
}


def manage(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False)


def run_command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command in this process, which sees the test's database."""
    out, err = StringIO(), StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=err, no_color=True)
    except SystemExit as exit:
        return int(exit.code or 0), out.getvalue(), err.getvalue()
    except CommandError as error:
        return error.returncode, out.getvalue(), err.getvalue() + str(error)
    return 0, out.getvalue(), err.getvalue()


# help


def test_a_worker_started_by_hand_knows_its_tasks() -> None:
    """Without DJANGO_SETTINGS_MODULE in the environment, as in a terminal."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    code = "import manage, os; from lab.celery import app; import django; django.setup(); app.loader.import_default_modules(); print(*app.tasks)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "supervise" in done.stdout.split()


@pytest.mark.parametrize("command", ["worker", "launch", "up", "demo", "backup", "restore"])
def test_help_needs_no_services(command: str, tmp_path: Path) -> None:
    left_out = {"DATABASE_URL", "REDIS_URL", "LAB_EMBEDDED", "SECRET_KEY", "LAB_HOME"}
    env = {name: value for name, value in os.environ.items() if name not in left_out} | {"LAB_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "manage.py", command, "--help"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "exit" in done.stdout.lower()
    assert not (tmp_path / "home/postgres").exists()


# worker


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "97"], "GPU 97 is not here"),
        (["--gpu", "first"], "give the number of a GPU"),
        (["--gpu", "0,1"], "give the number of a GPU"),
        (["--gpus", "0;1"], "give all, how many"),
        (["--gpus", "1,1"], "give all, how many"),
        (["--gpus", "0"], "is --gpu 0"),
        (["--gpus", "97"], "there are not so many"),
        (["--gpus", "96,97"], "GPU 96, 97 is not here"),
        (["--gpus", "all", "--gpu", "0"], "give one of them"),
        (["--idle-exit", "0"], "give seconds from 1"),
        (["--queues", "analysis", "--once"], "has no runs"),
        (["--queues", "gpu,"], "is not the name of a queue"),
        (["--queues", "a b"], "is not the name of a queue"),
        (["--name", "a/b"], "no slash"),
    ],
)
def test_a_worker_refuses_what_it_cannot_do(arguments: list[str], message: str) -> None:
    code, _, errors = run_command("worker", *arguments)
    assert code == 2
    assert message in errors
    assert not Worker.objects.exists()


@pytest.mark.django_db
def test_two_live_workers_cannot_share_a_name() -> None:
    worker = heartbeat.register_worker("first", ["gpu"])
    assert run_command("worker", "--name", "first")[0] == 2
    worker.seen_at = timezone.now() - ALIVE - timedelta(seconds=1)
    worker.save()
    assert heartbeat.register_worker("first", ["cpu"]).queues == ["cpu"]


@pytest.mark.django_db
def test_the_name_of_a_dead_process_of_this_host_is_free_at_once() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    worker = heartbeat.register_worker("first", ["gpu"])
    Worker.objects.filter(pk=worker.pk).update(pid=ended.pid)
    assert heartbeat.register_worker("first", ["gpu"]).pid == os.getpid()


def begin_worker(start_process: Start, name: str = "w", *options: str, **environment: str) -> ManagedProcess:
    child: ManagedProcess = start_process(name, "manage.py", "worker", "--name", name, *options, LAB_SWEEP_SECONDS="1", **environment)
    assert wait_for(lambda: "ready." in child.log.read_text() or child.exit_code is not None, 120), child.log.read_text()
    return child


@pytest.mark.feature(8)
def count_connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def test_a_worker_is_seen_drains_on_a_signal_and_leaves_no_trace(start_process: Start) -> None:
    connections = count_connections()
    child = begin_worker(start_process)
    assert wait_for(lambda: Worker.objects.alive().filter(name="w", queues=["gpu"], pid=child.process.pid, draining=False).exists(), 60)
    assert run_command("worker", "--check")[0] == 0
    below = psutil.Process(child.process.pid).children(recursive=True)
    assert len(below) == 1  # the forked child that supervises
    assert run_command("drain", "nobody")[0] == 2
    assert "finishes its run and takes no more." in run_command("drain", "w")[1]
    host = f"{child.process.pid}@{socket.gethostname()}"
    asked = app.control.inspect(destination=[host], timeout=2)
    assert wait_for(lambda: asked.active_queues() == {host: []}, 60), child.log.read_text()  # it leaves messages to others
    assert 2 <= count_connections() - connections <= 5  # of PostgreSQL's hundred, each worker takes few
    assert run_command("drain", "w", "--undo") == (0, "Worker w takes runs again.\n", "")
    child.process.send_signal(signal.SIGTERM)
    assert child.process.wait(120) == 0, child.log.read_text()
    assert not Worker.objects.exists()
    assert run_command("worker", "--check")[0] == 1
    assert not psutil.wait_procs(below, 60)[1]


def test_a_signal_that_interrupts_the_handler_of_another_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for connected in (signals.worker_shutting_down, signals.worker_ready, signals.worker_process_init):
        monkeypatch.setattr(connected, "receivers", [])
    service.connect_signals(heartbeat.Heartbeat(Worker(name="w")), [])
    with signals.worker_shutting_down.lock:  # where the first signal's handler stands
        assert signals.worker_shutting_down.lock.acquire(blocking=False)
        signals.worker_shutting_down.lock.release()


def test_a_killed_worker_takes_its_child_along_and_is_no_longer_alive(start_process: Start) -> None:
    child = begin_worker(start_process)
    below = psutil.Process(child.process.pid).children(recursive=True)
    child.process.kill()
    child.process.wait()
    assert not psutil.wait_procs(below, 60)[1]
    Worker.objects.update(seen_at=timezone.now() - ALIVE)
    assert not Worker.objects.alive().exists()


@pytest.mark.feature(8)
@pytest.mark.training
def test_a_drained_workers_run_is_saved_and_goes_on_elsewhere(start_process: Start, team: Team, owner: User) -> None:
    (run,) = launch_recipe(team, owner, "grpo", {**QUICK, "training": {**QUICK["training"], "max_steps": 60}})  # type: ignore[dict-item]
    first = begin_worker(start_process, "first")
    assert wait_for(lambda: Run.across_teams.get().step >= 3, 120), first.log.read_text()
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(180) == 0, first.log.read_text()
    run.refresh_from_db()
    saved = run.step
    assert run.status == Status.QUEUED
    assert saved < 60
    assert (run.folder / f"checkpoints/checkpoint-{saved}").is_dir()
    second = begin_worker(start_process, "second", "--once", "--idle-exit", "300")
    assert follow_runs([run.pk], Console(file=StringIO()))[0].status == Status.FINISHED
    run.refresh_from_db()
    assert (run.attempt, run.step) == (2, 60)
    assert list(run.attempts.values_list("from_step", flat=True)) == [0, saved]
    assert second.process.wait(60) == 0, second.log.read_text()  # after its one run, by itself
    assert not Worker.objects.exists()


@pytest.mark.training
def test_a_worker_told_twice_leaves_nothing_running(start_process: Start, team: Team, owner: User) -> None:
    launch_recipe(team, owner, "grpo", QUICK)
    child = begin_worker(start_process, LAB_STOP_GRACE_SECONDS="60")
    assert wait_for(lambda: Run.across_teams.get().step >= 1, 120), child.log.read_text()
    below = psutil.Process(child.process.pid).children(recursive=True)
    assert len(below) >= 2  # the supervisor and the trainer
    child.process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    child.process.send_signal(signal.SIGINT)
    child.process.wait(120)
    assert not psutil.wait_procs(below, 60)[1]


# launch


@pytest.mark.django_db
def test_launching_without_an_account_says_what_to_do_first() -> None:
    code, _, errors = run_command("launch", "grpo")
    assert code == 2
    assert "make up" in errors


def test_launching_queues_the_recipe_with_its_changes(owner: User) -> None:
    code, output, _ = run_command("launch", "grpo", "--set", "training.max_steps=20", "--set", "task.difficulty=medium", "--name", "mine")
    run = Run.across_teams.get()
    assert (code, run.name, run.created_by) == (0, "mine", owner)
    assert (run.spec["training"]["max_steps"], run.spec["task"]["difficulty"]) == (20, "medium")
    assert f"queued #1 mine  {run.folder}" in output


def test_launching_a_chain_says_what_follows_what(owner: User) -> None:
    code, output, _ = run_command("launch", "demo")
    assert code == 0
    assert "queued #2 demo: GRPO after #1" in output


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["gppo"], ["there are: calendar, chain-of-focus, cold-start, demo"]),
        (["grpo", "--set", "training.max_stepz=3", "--set", "seed=-1"], ["training.max_stepz", "seed = -1"]),
        (["grpo", "--set", "task.difficulty=nightmare"], ["task.difficulty = 'nightmare'"]),
        (["grpo", "--set", "nonsense"], ["not in the form key=value"]),
        (["grpo", "--policy", "/no/such/folder"], ["policy.path = '/no/such/folder'"]),
        (["grpo", "--policy", "run:7"], ["no run #7"]),
        (["grpo", "--user", "nobody@example.org"], ["nobody of that address"]),
        (["grpo", "--team", "elsewhere"], ["no such team; teams: reasoning"]),
    ],
)
def test_a_refused_launch_gives_one_problem_a_line_and_exit_code_2(owner: User, arguments: list[str], lines: list[str]) -> None:
    code, _, errors = run_command("launch", *arguments)
    assert code == 2
    for line in lines:
        assert any(line in given for given in errors.splitlines()), errors
    assert not Run.across_teams.exists()


def test_with_several_teams_one_must_be_chosen(owner: User, stranger: User) -> None:
    code, _, errors = run_command("launch", "grpo")
    assert code == 2
    assert "choose one with --team: elsewhere, reasoning" in errors
    assert run_command("launch", "grpo", "--team", "elsewhere")[0] == 0
    assert Run.across_teams.get().created_by == stranger
    assert run_command("launch", "grpo", "--user", owner.email)[0] == 0


def test_the_owner_launches_when_nobody_is_named(team: Team) -> None:
    make_member("early@example.org", team)
    owner = make_member("late@example.org", team, "owner")  # type: ignore[arg-type]
    run_command("launch", "grpo")
    assert Run.across_teams.get().created_by == owner


@pytest.mark.parametrize(
    ("statuses", "code"), [(["finished"], 0), (["failed"], 1), (["stopped"], 3), (["finished", "stopped"], 3), (["stopped", "failed"], 1)]
)
def test_waiting_ends_with_the_outcome(statuses: list[str], code: int) -> None:
    from lab.training.runs.management.commands.launch import exit_code

    assert exit_code([Run(status=status) for status in statuses]) == code


def test_following_gives_up_on_stages_behind_one_that_failed(team: Team, owner: User) -> None:
    runs = launch_recipe(team, owner, "demo")
    Run.across_teams.filter(pk=runs[0].pk).update(status=Status.FAILED)
    shown = StringIO()
    ended = follow_runs([run.pk for run in runs], Console(file=shown))
    assert [run.status for run in ended] == ["failed", "queued", "queued"]
    assert "\x1b" not in shown.getvalue()
    assert "step 0/600  failed" in shown.getvalue()


def test_on_a_terminal_every_run_has_a_bar_with_its_step_phase_and_reward(team: Team, owner: User) -> None:
    (run,) = launch_recipe(team, owner, "grpo", name="[bold]mine")
    now = timezone.now()
    Run.across_teams.update(status=Status.FINISHED, step=150, latest={"reward": 0.75}, started_at=now - timedelta(seconds=65), finished_at=now)
    shown = StringIO()
    follow_runs([run.pk], Console(file=shown, force_terminal=True, width=120))
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.getvalue())
    assert re.search(r"#1 \[bold\]mine .*150/150 +1:05 +finished  reward 0\.750", plain)


# up


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def make_tables_of_home(home: Path, make_tables: Callable[[str], None]) -> None:
    """As a start of the lab there would, which tries all migrations; another test starts one from nothing."""
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL", "LAB_EMBEDDED")}
    serve = "import sys; from lab import embedded; print(embedded.start_postgres(embedded.find_lab_home()), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", serve], cwd=ROOT, env=env | {"LAB_HOME": str(home)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin
        assert server.stdout
        make_tables(server.stdout.readline().strip())
        server.stdin.close()
    assert server.returncode == 0


class Up:
    """``manage.py up`` in a home of its own."""

    def __init__(self, home: Path, port: int, **environment: str) -> None:
        left_out = {"DATABASE_URL", "REDIS_URL", "LAB_EMBEDDED", "SECRET_KEY"}
        env = {name: value for name, value in os.environ.items() if name not in left_out} | {"LAB_HOME": str(home)} | environment
        self.url, self.log = f"http://127.0.0.1:{port}", home / "up.log"
        self.log.write_text("")
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(port)],
            cwd=ROOT,
            env=env,
            stdout=self.log.open("a"),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def says(self, text: str, seconds: float = 180) -> str:
        assert wait_for(lambda: text in self.log.read_text() or self.process.poll() is not None, seconds), self.log.read_text()
        assert text in self.log.read_text()
        return self.log.read_text()


@pytest.fixture
def up(home: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def begin(port: int, **environment: str) -> Up:
        started.append(Up(home, port, **environment))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(180)


def processes_of(home: Path) -> list[str]:
    """Command lines of the processes that live in this home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("LAB_HOME") == str(home):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def status_of(url: str) -> int:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return int(reply.status)


def end_with_ctrl_c(lab: Up, home: Path) -> None:
    lab.process.send_signal(signal.SIGINT)
    assert lab.process.wait(180) == 0
    assert wait_for(lambda: processes_of(home) == [], 180), processes_of(home)


def kill_worker(lab: Up, which: str, home: Path) -> None:
    """When a worker dies the lab says which and stops."""
    commands = {process: process.cmdline() for process in psutil.Process(lab.process.pid).children()}
    workers = {"analysis" if "--queues" in command else "worker": process for process, command in commands.items() if "worker" in command}
    workers[which].kill()
    assert lab.process.wait(180) == 1
    text = lab.log.read_text()
    assert f"the {which} process ended with exit code -9" in text
    assert "Traceback" not in text
    assert wait_for(lambda: processes_of(home) == [], 180), processes_of(home)


@pytest.mark.feature(88)
def test_the_lab_comes_up_survives_its_own_death_and_stops_on_ctrl_c_and_with_any_of_its_workers(up: Callable[..., Up], home: Path) -> None:
    """One home and four starts, because each start takes nine seconds of processor time."""
    port = free_port()
    lab = up(port)
    lab.says("Policy Lab is at")
    link = re.search(r"http://\S+/setup/\S+/", lab.says("/setup/"))
    assert link is not None
    assert status_of(lab.url + "/health/") == 200
    assert status_of(link[0]) == 200
    parts = [one for one in psutil.Process(lab.process.pid).children() if {"uvicorn", "worker"} & set(one.cmdline())]
    assert {one.environ()["LAB_URL"] for one in parts} == {lab.url}  # or an invitation would lead to another port
    second = Up(home, port)
    assert second.process.wait(180) == 1
    assert f"port {port} on 127.0.0.1 is in use" in second.log.read_text()
    make = "from lab.teams.accounts.models import User; User.objects.create_user('ada@example.org', 'correct horse battery')"
    env = {"LAB_HOME": str(home), "DATABASE_URL": "", "REDIS_URL": "", "SECRET_KEY": ""}
    assert manage("shell", "-v0", "-c", make, **env).returncode == 0
    logs = [home / "logs" / f"{worker}.log" for worker in ("worker", "analysis")]
    assert wait_for(lambda: all(log.exists() and "ready." in log.read_text() for log in logs), 180), [log.read_text()[-2000:] for log in logs]
    lab.process.kill()  # its workers and its web process go with it
    lab.process.wait()
    services = ("redis-server", "postgres")  # stay until the next start takes them over and stops them
    assert wait_for(lambda: [line for line in processes_of(home) if not any(name in line for name in services)] == [], 180), processes_of(home)
    again = up(port)
    assert "/setup/" not in again.says("Policy Lab is at")  # the data is found again
    began = time.monotonic()
    end_with_ctrl_c(again, home)
    assert time.monotonic() - began < 60  # and not the grace that a run would get
    for worker in ("worker", "analysis"):
        lab = up(free_port())
        lab.says("Policy Lab is at")
        kill_worker(lab, worker, home)


@pytest.mark.parametrize("port", ["0", "65536", "web", "-1"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(CommandError, match="give a number from 1 to 65535"):
        call_command("up", f"--port={port}")


# demo


@pytest.fixture
def chain(team: Team, owner: User) -> list[Run]:
    """The demo's runs as they are when all went well."""
    from django.db import connection

    runs = launch_recipe(team, owner, "demo")
    for run, (before, after) in zip(runs, ((0.0, 0.3), (0.3, 0.8), (0.8, 0.85)), strict=True):
        with connection.cursor() as cursor:
            metrics.append_metric_points(
                cursor, run.pk, 1, {"heldout/reward": [(0, before), (10, after)], "heldout/accuracy": [(0, before), (10, after)]}
            )
        now = timezone.now()
        Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED, started_at=now - timedelta(seconds=42), finished_at=now)
        run.refresh_from_db()
    return runs


def judged(runs: list[Run], monkeypatch: pytest.MonkeyPatch, stored: int = 64) -> None:
    monkeypatch.setattr(demonstration, "stored_rollouts", lambda run: stored)
    for run in runs:
        run.rollouts = 64
    demonstration.check_demo_result(runs)


def test_the_demo_succeeds_when_grpo_clearly_learnt(chain: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    judged(chain, monkeypatch)
    shown = StringIO()
    Console(file=shown, width=80).print(demonstration.table_of(chain))
    assert re.search(r"GRPO +0\.300→0\.800 +0\.300→0\.800 +nan→nan +64 +42", shown.getvalue()), shown.getvalue()


def test_the_demo_fails_when_a_stage_did_not_finish(chain: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    chain[2].status, chain[2].reason = Status.FAILED, "out of memory"
    with pytest.raises(demonstration.DemoError, match="is failed: out of memory"):
        judged(chain, monkeypatch)


def test_the_demo_fails_when_a_rollout_is_missing(chain: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(demonstration.DemoError, match="counted 64 rollouts, 63 are stored"):
        judged(chain, monkeypatch, stored=63)


def test_the_demo_fails_when_nothing_was_measured(chain: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    chain[1].chunks.all().delete()
    with pytest.raises(demonstration.DemoError, match=r"changed the held-out reward by \+nan"):
        judged(chain, monkeypatch)


def test_an_interrupted_demo_does_not_train_before_the_next(chain: list[Run], team: Team, owner: User) -> None:
    left = launch_recipe(team, owner, "demo")
    others = launch_recipe(team, None, "demo")
    demonstration.stop_leftovers(owner)
    assert set(Run.across_teams.filter(pk__in=[run.pk for run in others]).values_list("status", flat=True)) == {Status.QUEUED}
    assert set(Run.across_teams.filter(pk__in=[run.pk for run in left]).values_list("status", flat=True)) == {Status.STOPPED}
    assert set(Run.across_teams.filter(pk__in=[run.pk for run in chain]).values_list("status", flat=True)) == {Status.FINISHED}


@pytest.mark.training
@pytest.mark.timeout(900)
def test_a_demo_too_short_to_learn_goes_all_the_way_and_fails(home: Path, make_tables: Callable[[str], None]) -> None:
    make_tables_of_home(home, make_tables)
    # A cold start just long enough that some answers are right, because DPO needs pairs; then too few steps to learn from them.
    few = {"max_steps": 4, "per_device_train_batch_size": 16}
    shown = {"max_steps": 80, "per_device_train_batch_size": 12, "demonstrations": 960}
    stages = [{"training": shown}, {"training": few}, {"training": {**few, "sampled_prompts": 100}}]
    code = f"""
import os, sys
sys.argv = ["manage.py", "demo"]
import manage
manage.prepare(sys.argv[1:])
import django; django.setup()
from rich.console import Console
from lab.training.runs.demo import run_demo
sys.exit(run_demo(Console(width=120), {{"stages": {stages}, "evaluation": {{"prompts": 32}}}}))
"""
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL", "LAB_EMBEDDED", "SECRET_KEY")}
    env |= {"LAB_HOME": str(home), "DJANGO_SETTINGS_MODULE": "lab.settings"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Held-out problems, before" in done.stdout
    assert "#2 Demo: GRPO: step 4/4  finished" in done.stdout
    assert "The demo failed: " in done.stdout
    watched = re.search(r"Watch it train: (http://127\.0\.0\.1:\d+/setup/\S+)  \(the link makes the first account", done.stdout)
    assert watched, done.stdout
    assert done.stdout.rstrip().endswith("start it with make up and follow the link it prints.")
    assert "\x1b" not in done.stdout
    assert processes_of(home) == []
    assert not (home / "demo").exists()
