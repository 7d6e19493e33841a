"""A lab in use, backed up and restored into another home; and a database of 0.1 that this version takes over."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from lab.edges.operations.manifests import read_manifest
from lab.lib.secret_key import read_or_create
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team, User
from lab.teams.audit.anchor import write_anchor
from lab.teams.audit.chain import link_waiting, read_head
from lab.training.runs.models import Run, Status
from tests.lab.cast import make_cast
from tests.lab.operations.describing import describe_lab
from tests.lab.policies.making import place, write_policy
from tests.lab.supervisor.spools import make_run, started, steps, write

ROOT = Path(__file__).resolve().parents[3]
OLD = Path(__file__).with_name("fixtures") / "lab-0.1.sql.gz"  # made with commit 12d5c9ba, the oldest with labels and datasets
SERVICES = ("DATABASE_URL", "REDIS_URL", "LAB_EMBEDDED", "SECRET_KEY", "LAB_RUNS", "LAB_DATASETS", "LAB_POLICIES")


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: those of the tests' own temporary folders are too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def call_in_child(code: str, environment: dict[str, str]) -> dict[str, Any]:
    """What the last line of its output says."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


class Training(threading.Thread):
    """Writes steps of a run and ingests them until it is told to end."""

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self.run_row, self.ended, self.step = run, threading.Event(), 3
        self.moving = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            self.step += 1
            write(self.run_row.folder, steps(self.step, self.step), tail=b"")
            ingest_spool(self.run_row)
            self.moving.set()
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_a_lab_that_trains_comes_back_whole_in_another_home(
    home: Path, tmp_path: Path, team: Team, owner: User, settings: Any, run_folders: Path
) -> None:
    settings.DATASETS_ROOT, settings.POLICIES_ROOT, settings.HOME = tmp_path / "datasets", tmp_path / "policies", tmp_path
    settings.SECRET_KEY = read_or_create(tmp_path / "secret-key")
    cast = make_cast(team, owner, "kept")
    dataset = cast.version
    (settings.DATASETS_ROOT / str(team.pk)).mkdir(parents=True)
    (settings.DATASETS_ROOT / str(team.pk) / "v1.jsonl").write_text('{"prompt": "a"}\n')
    (settings.DATASETS_ROOT / str(team.pk) / "v1.jsonl").chmod(0o444)
    type(dataset).across_teams.filter(pk=dataset.pk).update(train_file="v1.jsonl")
    write_policy(settings.POLICIES_ROOT / "base")
    trained = make_run(team, status=Status.RUNNING, owner="worker/1", lease_until=timezone.now() + timedelta(minutes=5))
    Run.across_teams.filter(pk=trained.pk).update(spec={"recipe": "grpo", "output": str(trained.folder)})
    write(trained.folder, [started(total_steps=10_000), *steps(1, 3)])
    place(trained, 3)
    link_waiting()
    write_anchor(read_head())
    pages = [reverse("run", args=[cast.run.pk]), reverse("rollout", args=[cast.rollout.pk]), reverse("version", args=[dataset.pk])]
    asked = {"email": owner.email, "addresses": [*pages, reverse("queue", args=[cast.queue.pk])], "runs": [str(cast.run.pk)]}
    before = describe_lab(**asked)
    training = Training(Run.across_teams.get(pk=trained.pk))
    training.start()
    assert training.moving.wait(30)
    try:
        call_command("backup", str(tmp_path / "backup"), "--key", str(tmp_path / "key"))
    finally:
        training.ended.set()
        training.join()
    manifest = read_manifest(tmp_path / "backup")
    assert manifest.left_out == []
    assert manifest.counts["labels"] == manifest.counts["dataset_versions"] == 1
    assert_private(tmp_path / "backup")
    environment = {name: value for name, value in os.environ.items() if name not in SERVICES} | {"LAB_HOME": str(home), "PYTHONPATH": "."}
    told = json.dumps({**asked, "trained": str(trained.pk)})
    code = "from tests.lab.operations.describing import restore_and_describe as f; f({!r}, {!r}, {!r})"
    after = call_in_child(code.format(str(tmp_path / "backup"), str(tmp_path / "key"), told), environment)
    assert after["lab"] == json.loads(json.dumps(before))
    about = after["trained"]
    assert (about["status"], about["spec"]["output"]) == (Status.LOST, str(home / "runs" / str(trained.pk)))
    assert "waiting for another" in about["reason"]
    assert 0 < about["ingested"] <= about["length"]
    assert about["step"] <= after["after"] <= training.step
    assert after["chain"] == ""
    assert (home / "secret-key").read_text() == settings.SECRET_KEY
    assert (home / "policies/base/model.safetensors").read_bytes() == (settings.POLICIES_ROOT / "base/model.safetensors").read_bytes()
    assert stat.S_IMODE((home / f"datasets/{team.pk}/v1.jsonl").stat().st_mode) == 0o400
    assert (home / f"runs/{trained.pk}/checkpoints/checkpoint-3/optimizer.pt").exists()
    assert not (home / "restore.partial").exists()


def assert_private(folder: Path) -> None:
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in [folder, *folder.rglob("*")]}
    assert modes == {(True, 0o700), (False, 0o600)}
    assert stat.S_IMODE((folder.parent / "key").stat().st_mode) == 0o600


@pytest.fixture
def old_database() -> Iterator[str]:
    """The URL of a database as 0.1 left it."""
    url = urlsplit(os.environ["DATABASE_URL"])
    name = f"upgraded_{os.getpid()}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
        server.execute(f"CREATE DATABASE {name}")
    there = urlunsplit(url._replace(path=f"/{name}"))
    with psycopg.connect(there, autocommit=True) as database:
        database.execute(gzip.decompress(OLD.read_bytes()))
    yield there
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_database_of_0_1_is_migrated_and_read(old_database: str, tmp_path: Path) -> None:
    environment = {**os.environ, "DATABASE_URL": old_database, "LAB_RUNS": str(tmp_path), "PYTHONPATH": ".", "SECRET_KEY": django_settings.SECRET_KEY}
    found = call_in_child("from tests.lab.operations.describing import upgrade_and_describe as f; f('owner@example.org')", environment)
    assert (found["name"], found["status"]) == ("run of 0.1", Status.FINISHED)
    assert found["label"] == ["a", "rationale of 0.1", "owner@example.org"]
    [rows] = found["lab"]["rows"].values()
    assert [(step, text) for _, step, text in rows] == [(1, "completion of 0.1")] * 2
    assert found["preferred"] == [[rows[0][0], rows[1][0]]]
    run, rollout, queue = found["lab"]["pages"].values()
    assert "run of 0.1" in run
    assert "completion of 0.1" in rollout
    assert "queue of 0.1" in queue
