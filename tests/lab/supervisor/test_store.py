"""Machines that share no folder: what a run saves is in the store while it trains on, another machine goes on from there, events are stored once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from lab.lib.artifact_store import ArtifactStore
from lab.supervision.supervisor import logs, uploads
from lab.supervision.supervisor.ingest import ingest_spool
from lab.supervision.supervisor.shared_files import SharedFiles
from lab.supervision.supervisor.supervise import run_supervisor
from lab.supervision.supervisor.uploads import LeftBehind
from lab.teams.accounts.models import Team
from lab.training.edits.forking import plan_fork
from lab.training.edits.models import EditState, RunEdit, RunFork
from lab.training.runs.models import Run, Status
from lab.training.runs.spool_files import begin_spool_here, is_spool_here
from lab.training.runs.store_deletions import delete_from_store
from tests.lab.supervisor.driver import PROGRAM
from tests.lab.supervisor.machines import Machine, names_in_store
from tests.lab.supervisor.spools import events_of, make_run, started, steps, write
from tests.lab.supervisor.test_supervise import wait_for
from trainers.contract import spool
from trainers.contract.events import Metrics, Rollout
from trainers.contract.spec import RUN_FILE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def store_url(tmp_path: Path, settings: Any) -> str:
    settings.STORE_URL = f"file://{tmp_path}/store"
    return str(settings.STORE_URL)


@pytest.fixture
def one(store_url: str, settings: Any, tmp_path: Path) -> Machine:
    return Machine(settings, tmp_path / "one")


@pytest.fixture
def two(store_url: str, settings: Any, tmp_path: Path) -> Machine:
    return Machine(settings, tmp_path / "two")


def train_on(machine: Machine, run: Run) -> None:
    with machine.here():
        assert run_supervisor(str(run.pk), "here:1", PROGRAM)
    run.refresh_from_db()


def stop_on(machine: Machine, run: Run, step: int) -> None:
    """Trains until ``step`` and is stopped then."""

    def work() -> None:
        try:
            run_supervisor(str(run.pk), "here:1", PROGRAM)
        finally:
            connection.close()

    with machine.here():
        thread = threading.Thread(target=work)
        thread.start()
        try:
            wait_for(run, lambda run: run.step >= step)
        finally:
            run.request_stop()
            thread.join(30)
    run.refresh_from_db()
    assert run.status == "stopped", run.reason


def stored_names(url: str, run: Run) -> list[str]:
    return [name.removeprefix(f"runs/{run.pk}/") for name in names_in_store(url)]


def rollouts_of(run: Run) -> dict[int, int]:
    """Attempt → how many are in the database."""
    counts: dict[int, int] = {}
    for attempt in run.samples.values_list("attempt", flat=True):
        counts[attempt] = counts.get(attempt, 0) + 1
    return counts


def test_a_run_goes_from_machine_to_machine_and_every_event_is_stored_once(team: Team, one: Machine, two: Machine, store_url: str) -> None:
    run = make_run(team, spec={"steps": 80, "fail_at": 13, "pace": 0.02, "limits": {"keep_checkpoints": 2}})
    train_on(one, run)
    assert (run.status, run.step) == ("failed", 12)
    assert stored_names(store_url, run) == ["checkpoints/checkpoint-10/attempt-1", "checkpoints/checkpoint-5/attempt-1"]
    assert [path.name for path in (one.folder(run) / "checkpoints").iterdir()] == ["checkpoint-10"]  # the older one is stored and superseded

    assert run.resume()
    stop_on(two, run, 16)
    second = run.attempts.get(number=2)
    assert (second.from_step, run.attempt) == (10, 2)
    assert f"checkpoints/checkpoint-{run.step}/attempt-2" in stored_names(store_url, run)

    stopped_at = run.step
    assert run.resume()
    train_on(one, run)  # whose folder still has attempt 1
    assert (run.status, run.step, run.attempt, run.reason) == ("finished", 80, 3, "")
    assert run.attempts.get(number=3).from_step == stopped_at
    assert rollouts_of(run) == {1: 12 * 8, 2: (stopped_at - 10) * 8, 3: (80 - stopped_at) * 8}
    assert run.samples.current().count() == run.rollouts == 80 * 8
    with one.here():
        assert is_spool_here(run)
        assert run.ingested == run.spool_begin + (one.folder(run) / spool.SPOOL).stat().st_size
        assert [event.attempt for event in events_of(one.folder(run)) if isinstance(event, Rollout)] == [3] * (80 - stopped_at) * 8
    with two.here():
        assert not is_spool_here(run)
        assert ingest_spool(run) is None
    final = run.checkpoints.get(final=True)
    assert final.stored_at is not None
    with ArtifactStore(store_url).open_file(f"runs/{run.pk}/final/attempt-3", "model.safetensors") as file:
        assert file.read() == b"final weights of attempt 3"
    assert not list((one.folder(run) / "checkpoints").iterdir())  # the final policy is stored: nobody resumes a finished run
    kept = [row.step for row in run.checkpoints.filter(final=False).exclude(stored_at=None)]
    assert kept == [80, 75]
    delete_from_store()
    names = ["checkpoints/checkpoint-75/attempt-3", "checkpoints/checkpoint-80/attempt-3", "final/attempt-3"]
    assert stored_names(store_url, run) == names


def test_an_attempt_without_a_log_costs_nothing_of_what_its_machine_holds(team: Team, one: Machine) -> None:
    run = make_run(team, spec={"steps": 20, "fail_at": 13, "save_every": 100})  # no checkpoint: the spool is all that there is
    train_on(one, run)
    with one.here():
        logs.log_file(run.folder, run.attempt).unlink()  # as it never was on a full disk
        with (run.folder / spool.SPOOL).open("ab") as file:
            file.write(spool.encoder.encode(Metrics(attempt=1, time=1.0, step=12, values={"late": 1.0})) + b"\n")  # nobody has read it yet
    assert run.resume()
    train_on(one, run)
    assert (run.status, run.attempt, run.spool_begin) == ("finished", 2, 0)
    with one.here():
        assert run.ingested == (run.folder / spool.SPOOL).stat().st_size
        assert {event.attempt for event in events_of(run.folder)} == {1, 2}


def test_nothing_in_the_store_means_from_the_beginning(team: Team, one: Machine, two: Machine) -> None:
    run = make_run(team, spec={"steps": 6, "fail_at": 4, "save_every": 100})
    train_on(one, run)
    assert run.resume()
    train_on(two, run)
    assert (run.status, run.attempt, run.rollouts) == ("finished", 2, 6 * 8)
    assert run.attempts.get(number=2).from_step == 0
    assert rollouts_of(run) == {1: 3 * 8, 2: 6 * 8}


def test_what_finished_elsewhere_is_not_trained_again(team: Team, one: Machine, two: Machine) -> None:
    run = make_run(team, spec={"steps": 3})
    train_on(one, run)
    Run.across_teams.filter(pk=run.pk).update(status=Status.LOST)  # its supervisor died between the last event and the outcome
    train_on(two, run)
    assert (run.status, run.attempt, two.folder(run).exists()) == ("finished", 1, False)


def test_a_machine_that_lost_the_run_stores_none_of_its_lines(team: Team, one: Machine, two: Machine) -> None:
    run = make_run(team)
    with one.here():
        assert begin_spool_here(run)
        write(run.folder, [started(), *steps(1, 2)])
        assert ingest_spool(run)
        late = Run.across_teams.get(pk=run.pk)
        write(run.folder, steps(3, 4))
    with two.here():
        assert begin_spool_here(run)
        write(run.folder, [started(attempt=2, from_step=2), *steps(3, 3, attempt=2)])
    with one.here():
        assert ingest_spool(late) is None
        assert late.spool_token == run.spool_token  # it knows now
    with two.here():
        assert ingest_spool(run)
    run.refresh_from_db()
    assert rollouts_of(run) == {1: 2 * 8, 2: 8}
    with two.here():
        (run.folder / spool.SPOOL).write_bytes(b"")  # a file that is shorter than what was read of it, from an old backup say
        assert not is_spool_here(run)


def test_a_store_that_is_away_keeps_nobody_from_training(
    team: Team, one: Machine, store_url: str, as_owner: Client, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LEAST_SECONDS", 0.1)
    monkeypatch.setattr(uploads, "FIRST_RETRY", 0.05)
    settings.STOP_GRACE_SECONDS = 0.3
    (tmp_path / "store").write_text("a file where the store should be")
    run = make_run(team, spec={"steps": 4, "save_every": 2})
    train_on(one, run)
    assert (run.status, run.rollouts) == ("finished", 4 * 8)
    assert {row.store_problem != "" for row in run.checkpoints.all()} == {True}
    page = reverse("run-config", args=[run.pk])
    assert "upload failed, will be retried: " in as_owner.get(page).content.decode()
    (tmp_path / "store").unlink()
    with one.here():
        assert uploads.is_uploading("here:1")  # a worker that leaves by itself stays for it
        left = LeftBehind()
        left.upload()
        assert not uploads.is_uploading("here:1")
    assert not run.checkpoints.filter(stored_at=None).exists()
    assert not run.checkpoints.exclude(store_problem="").exists()
    text = as_owner.get(page).content.decode()
    assert (text.count("<td>stored</td>"), "retried" in text) == (3, False)


def test_what_a_run_needs_is_fetched_by_a_worker_that_has_not_got_it(team: Team, one: Machine, two: Machine, store_url: str) -> None:
    parent = make_run(team, spec={"steps": 3})
    train_on(one, parent)
    mine = f"datasets/{team.pk}"
    files = {f"{mine}/pairs.jsonl": "{}\n", f"{mine}/tasks/own.task.jsonl": "[]\n", "policies/small/config.json": "{}"}
    for name, content in files.items():
        path = one.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o444)  # as the lab leaves what it has written whole
    with one.here():
        SharedFiles().store()
    assert names_in_store(store_url, "datasets") == [f"datasets/{team.pk}/pairs.jsonl", f"datasets/{team.pk}/tasks/own.task.jsonl"]
    spec = {
        "steps": 2,
        "output": "/launcher/runs/own",
        "policy": {"kind": "run", "folder": f"/launcher/runs/{parent.pk}", "checkpoint": "final"},
        "teacher": {"kind": "folder", "path": "/launcher/policies/small"},
        "dataset": {"path": f"/launcher/datasets/{team.pk}/pairs.jsonl", "sha256": "0"},
        "task": {"name": "own", "file": {"path": f"/launcher/datasets/{team.pk}/tasks/own.task.jsonl", "sha256": "0"}},
    }
    run = make_run(team, spec=spec)
    train_on(two, run)
    assert run.status == "finished", run.reason
    import json

    local = json.loads((two.folder(run) / RUN_FILE).read_text())
    assert local["output"] == str(two.folder(run))
    policy = Path(local["policy"]["folder"])
    assert (policy / "final/model.safetensors").read_text() == "final weights of attempt 1"
    assert json.loads((policy / RUN_FILE).read_text()) == parent.spec
    assert Path(local["teacher"]["path"], "config.json").read_text() == "{}"
    assert Path(local["dataset"]["path"]).read_text() == "{}\n"
    assert Path(local["task"]["file"]["path"]).read_text() == "[]\n"
    assert {Path(local[part][key]).is_relative_to(two.folder(run)) for part, key in (("policy", "folder"), ("dataset", "path"))} == {True}


def test_a_run_that_waits_for_its_files_says_so_and_can_be_stopped(team: Team, two: Machine) -> None:
    run = make_run(team, spec={"steps": 2, "policy": {"kind": "folder", "path": "/launcher/policies/late"}})

    def work() -> None:
        try:
            run_supervisor(str(run.pk), "here:1", PROGRAM)
        finally:
            connection.close()

    with two.here():
        thread = threading.Thread(target=work)
        thread.start()
        wait_for(run, lambda run: run.phase == "fetching files")
        assert run.reason == "waits for its files: policies/late is not in the store"
        run.request_stop()
        thread.join(20)
    run.refresh_from_db()
    assert (run.status, run.reason) == ("stopped", "stopped before it started")


def test_edits_go_along_to_the_next_machine(team: Team, one: Machine, two: Machine) -> None:
    run = make_run(team, spec={"steps": 4, "fail_at": 3, "save_every": 2})
    train_on(one, run)
    held = {"changes": {"training.learning_rate": 0.5}, "steps": {"training.learning_rate": 2}}
    RunEdit.objects.create(run=run, key="held", state=EditState.APPLIED, sent_at=run.started_at, **held)
    RunEdit.objects.create(run=run, key="waits", changes={"training.beta": 0.1}, sent_at=run.started_at)
    assert run.resume()
    train_on(two, run)
    lines = {name: (two.folder(run) / "edits" / f"{name}.jsonl").read_text() for name in ("applied", "requests")}
    assert ('"key":"held"' in lines["applied"].replace(" ", ""), "waits" in lines["applied"]) == (True, False)
    assert ("waits" in lines["requests"], "held" in lines["requests"]) == (True, False)


def test_a_run_without_an_edit_begins_with_a_checkpoint_that_only_the_store_has(team: Team, one: Machine, two: Machine) -> None:
    source = make_run(team, spec={"steps": 8, "save_every": 2, "limits": {"keep_checkpoints": 9}})
    train_on(one, source)
    held = {"changes": {"training.learning_rate": 0.5}, "steps": {"training.learning_rate": 6}}
    edit = RunEdit.objects.create(run=source, key="held", state=EditState.APPLIED, **held)
    plan = plan_fork(edit)
    assert plan is not None
    assert (plan.from_step, plan.repeated) == (4, 1)
    fork = make_run(team, spec=source.spec)
    RunFork.objects.create(run=fork, edit=edit, from_step=plan.from_step, until_step=plan.until_step)
    train_on(two, fork)
    assert (fork.status, fork.attempts.get().from_step) == ("finished", 4), fork.reason
