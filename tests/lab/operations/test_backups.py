"""Backups that are refused, interrupted or not whole, and restores that would lose something."""

from __future__ import annotations

import errno
import os
import shutil
from collections import namedtuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from lab.edges.operations import backups, file_copies, postgres_tools, restores, secret_keys, spool_checks
from lab.edges.operations.file_copies import DamagedFile, ProgressReport, StorageFull
from lab.edges.operations.manifests import DUMP, FORMAT, MANIFEST, Manifest, RunState, StoredFile, read_manifest, write_manifest
from lab.edges.operations.relocations import relocate_value
from lab.lib.half_restored import get_restore_marker
from lab.lib.known_migrations import list_unknown_migrations, refuse_newer_database
from lab.lib.refusals import Refusal
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team, User
from lab.training.runs.local_lab import LabError, prepare_database
from lab.training.runs.models import MAX_RESCUES, Run, Status
from tests.lab.accounts.signing_in import give_app
from tests.lab.supervisor.spools import events_of, make_run, measured, started, steps, store, write
from trainers.contract import spool


@pytest.fixture(autouse=True)
def home(tmp_path: Path, settings: Any) -> Path:
    """Everything of the lab that lies on a disk, in the test's own folder."""
    home = tmp_path / "home"
    home.mkdir()
    settings.HOME, settings.DATASETS_ROOT, settings.POLICIES_ROOT, settings.RUNS_ROOT = home, home / "datasets", home / "policies", home / "runs"
    return home


def quiet() -> ProgressReport:
    return ProgressReport(lambda text: None, "Files", 0)


def refuse(*arguments: str, code: int = 2) -> str:
    """The words of a command that ends with that exit code."""
    with pytest.raises(CommandError) as refused:
        call_command(*arguments)
    assert refused.value.returncode == code
    return str(refused.value)


def make_manifest(folder: Path, **fields: Any) -> Manifest:
    """A manifest of a backup without files, written into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {
        "format": FORMAT,
        "made_at": datetime(2026, 1, 2, tzinfo=UTC),
        "version": "0.1.0",
        "server": 16,
        "tool": 16,
        "migrations": ["runs.0001_initial"],
        "roots": {},
        "key": secret_keys.fingerprint_secret_key("k" * 50),
        "with_files": False,
        "counts": {},
        "runs": [],
        "database": StoredFile(DUMP, 0, ""),
        "files": [],
        "left_out": [],
    }
    manifest = Manifest(**{**about, **fields})
    write_manifest(folder, manifest)
    return manifest


# Backup


def test_a_backup_is_never_written_over_another_nor_into_what_it_copies(tmp_path: Path, home: Path, db: None) -> None:
    (tmp_path / "there").mkdir()
    assert "is already there" in refuse("backup", str(tmp_path / "there"))
    assert "is inside" in refuse("backup", str(home / "runs" / "backup"))
    assert "Keep the key apart" in refuse("backup", str(tmp_path / "new"), "--key", str(tmp_path / "new" / "key"))
    (tmp_path / "key").write_text("k")
    assert "is already there" in refuse("backup", str(tmp_path / "new"), "--key", str(tmp_path / "key"))
    assert not (tmp_path / "new").exists()


def test_tools_that_are_older_than_the_server_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    folder, version = postgres_tools.find_postgres_tools(postgres_tools.read_server_version())
    assert version >= postgres_tools.read_server_version()
    assert (folder / "pg_restore").exists()
    with pytest.raises(Refusal, match=r"PostgreSQL 99 needs pg_dump and pg_restore of version 99 or later: version \d+ is installed"):
        postgres_tools.find_postgres_tools(99)
    monkeypatch.setattr(postgres_tools, "list_tool_folders", lambda: iter([tmp_path]))
    assert "none are installed. Install them" in refuse("backup", str(tmp_path / "new"))


@pytest.mark.django_db(transaction=True)
def test_an_interrupted_backup_is_gone_on_with(tmp_path: Path, home: Path, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(team)
    store(run, started(), *steps(1, 2))
    (home / "policies/base").mkdir(parents=True)
    (home / "policies/base/config.json").write_text("{}")
    part = tmp_path / "backup.partial"
    with monkeypatch.context() as patched:
        patched.setattr(backups, "write_manifest", lambda *words: (_ for _ in ()).throw(OSError(errno.EIO, "the disk is gone")))
        assert "the disk is gone" in refuse("backup", str(tmp_path / "backup"), code=1)
    assert not (part / MANIFEST).exists()
    assert "interrupted before it was whole" in refuse("restore", str(part))
    kept = (part / "policies/base/config.json").stat().st_ino
    (part / "policies/stranger").write_text("of a policy that is gone")
    write(run.folder, steps(3, 3))
    call_command("backup", str(tmp_path / "backup"))
    manifest = read_manifest(tmp_path / "backup")
    assert (tmp_path / "backup/policies/base/config.json").stat().st_ino == kept
    assert not part.exists()
    assert {file.path for file in manifest.files} == {f"runs/{run.pk}/events.jsonl", "policies/base/config.json"}
    assert not (tmp_path / "backup/policies/stranger").exists()
    assert manifest.spool_bytes(spool.SPOOL) == {str(run.pk): (run.folder / spool.SPOOL).stat().st_size}
    assert [state.ingested for state in manifest.runs] == [run.ingested]


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, 1 << 40, 1 << 20))
        with pytest.raises(StorageFull, match=r"has 1\.0 MB free and the files need 5\.0 GB: free some space"):
            file_copies.refuse_without_room(tmp_path, 5_000_000_000, "the files")
    (tmp_path / "source").write_bytes(b"x" * 3 * file_copies.PIECE)
    real, pieces = file_copies.write_piece, []

    def fill(number: int, piece: bytes) -> None:
        pieces.append(piece)
        if len(pieces) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number, piece)

    monkeypatch.setattr(file_copies, "write_piece", fill)
    with pytest.raises(StorageFull, match="goes on where it was"):
        file_copies.copy_file(tmp_path / "source", tmp_path / "copy" / "file", "file", quiet())
    copied = file_copies.copy_file(tmp_path / "source", tmp_path / "copy" / "file", "file", quiet())
    assert copied is not None
    assert copied.bytes == 3 * file_copies.PIECE


def test_of_a_run_folder_only_what_is_whole_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    for name in (
        "checkpoints/checkpoint-5/model",
        "checkpoints/checkpoint-9/model",
        "checkpoints/.partial-12/model",
        "final/model",
        "edits/applied.jsonl",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    for name in ("events.jsonl", "lock", "stop", "attempt-1.log", "run.json"):
        (folder / name).write_text(name)
    (folder / "link").symlink_to("/etc/hostname")
    real, order = file_copies.copy_file, []

    def copy(source: Path, target: Path, name: str, *words: Any, **more: Any) -> StoredFile | None:
        order.append(source.relative_to(folder).as_posix())
        if order[-1] == "checkpoints/checkpoint-9/model":  # the trainer keeps so many, and has just written another
            shutil.rmtree(folder / "checkpoints/checkpoint-5")
        return real(source, target, name, *words, **more)

    monkeypatch.setattr(file_copies, "copy_file", copy)
    copies = backups.Copies()
    backups.copy_run_folder(folder, tmp_path / "copy", "runs/1", copies, quiet())
    early = {"attempt-1.log", "checkpoints/checkpoint-9/model", "run.json"}
    late = {"final/model", "edits/applied.jsonl"}
    assert {file.path.removeprefix("runs/1/") for file in copies.files} == early | late | {"events.jsonl"}
    assert all(order.index(name) < order.index("events.jsonl") for name in early)
    assert all(order.index(name) > order.index("events.jsonl") for name in late)
    assert copies.left_out == ["runs/1/link: a link or no plain file", "runs/1/checkpoints/checkpoint-5: replaced by a newer one meanwhile"]


# Restore


def test_a_lab_in_use_is_not_restored_into(tmp_path: Path, home: Path, db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not a backup: it does not exist" in refuse("restore", str(tmp_path / "nothing"))
    make_manifest(tmp_path / "backup", with_files=True)
    assert "This lab is in use: its database has tables. Restore into an empty one: LAB_HOME=" in refuse("restore", str(tmp_path / "backup"))
    monkeypatch.setattr(restores, "has_tables", lambda: False)
    (home / "runs").mkdir()
    (home / "runs/of-somebody").mkdir()
    assert "is not empty: it holds of-somebody. Restore into an empty lab: name another folder in LAB_RUNS" in refuse(
        "restore", str(tmp_path / "backup")
    )
    assert not get_restore_marker().exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"migrations": ["runs.0001_initial", "runs.9999_later", "new_room.0001_initial"]}, "does not know new_room.0001_initial, runs.9999_later"),
        ({"server": 99}, "The backup is of PostgreSQL 99, this lab has"),
        ({"tool": 99}, "PostgreSQL 99 needs pg_dump and pg_restore"),
        ({"format": 2}, "has format 2, this version of the lab reads 1"),
        ({"files": [StoredFile("runs/../../etc/passwd", 1, "")]}, "which is in no folder of a lab"),
    ],
)
def test_a_backup_that_this_lab_cannot_read_is_refused(tmp_path: Path, db: None, fields: dict[str, Any], words: str) -> None:
    make_manifest(tmp_path / "backup", **fields)
    assert words in refuse("restore", str(tmp_path / "backup"))


def test_the_key_must_be_that_of_the_backup(tmp_path: Path, db: None) -> None:
    make_manifest(tmp_path / "backup")
    (tmp_path / "short").write_text("short")
    (tmp_path / "other").write_text("o" * 50)
    assert "holds 5 characters" in refuse("restore", str(tmp_path / "backup"), "--key", str(tmp_path / "short"))
    assert "is not the key of this backup" in refuse("restore", str(tmp_path / "backup"), "--key", str(tmp_path / "other"))


def test_without_the_key_it_says_what_cannot_be_read(owner: User) -> None:
    give_app(owner)
    [words] = secret_keys.list_unreadable_secrets()
    assert words.startswith("2 authenticator apps and sets of recovery codes")


def test_a_damaged_file_is_not_restored(tmp_path: Path) -> None:
    stored = StoredFile("runs/1/a", 3, "0" * 64)
    with pytest.raises(DamagedFile, match="is missing"):
        file_copies.restore_file(tmp_path, stored, tmp_path / "home" / "a", quiet())
    (tmp_path / "runs/1").mkdir(parents=True)
    (tmp_path / "runs/1/a").write_text("abc")
    with pytest.raises(DamagedFile, match="is not what the manifest says"):
        file_copies.restore_file(tmp_path, stored, tmp_path / "home" / "a", quiet())
    assert not (tmp_path / "home/a").exists()


def test_a_spool_behind_the_database_is_refused_or_mended(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(team)
    store(run, started(), *steps(1, 4), started(attempt=2, from_step=4), *steps(5, 6, attempt=2))
    Run.across_teams.filter(pk=run.pk).update(attempt=2)
    path, whole = run.folder / spool.SPOOL, run.ingested
    cut = path.read_bytes()[: whole // 3]
    path.write_bytes(cut)
    state = RunState(str(run.pk), 2, 6, whole)
    monkeypatch.setattr(restores, "has_tables", lambda: False)
    make_manifest(tmp_path / "backup", runs=[state])
    said = refuse("restore", str(tmp_path / "backup"), "--no-files")
    assert f"1 spools are shorter than what the database holds of them: run {run.pk} ({len(cut)} of {whole} bytes)" in said
    assert "--repair" in said
    short = spool_checks.find_short_spools(read_manifest(tmp_path / "backup"), in_backup=False)
    assert spool_checks.mend_short_spools(short) == 1
    assert path.stat().st_size == whole
    assert path.read_bytes().startswith(cut[: cut.rfind(b"\n") + 1])
    assert spool.last_attempt(path) == 2
    assert spool_checks.mend_short_spools(short) == 0
    write(run.folder, [started(attempt=3, from_step=6), measured(7, attempt=3)])
    run.refresh_from_db()
    while ingest_spool(run):
        pass
    assert (run.step, run.attempt) == (7, 3)
    assert len(events_of(run.folder)) > 3


@pytest.mark.parametrize("short_by", [1, 40, 300, 200_000])
def test_a_mended_spool_is_as_long_as_the_database_says(tmp_path: Path, short_by: int) -> None:
    path = tmp_path / spool.SPOOL
    lines = b"".join(spool.encoder.encode(measured(step)) + b"\n" for step in range(1, 20))
    path.write_bytes(lines)
    spool_checks.mend_spool(path, RunState("1", 4, 19, len(lines) + short_by))
    data = path.read_bytes()
    assert len(data) == len(lines) + short_by
    assert data.endswith(b"\n")
    assert spool.last_attempt(path) == 4


def test_runs_that_trained_wait_for_a_worker_however_often_they_were_rescued(team: Team) -> None:
    common = {"status": Status.RUNNING, "owner": "worker/1", "lease_until": datetime(2100, 1, 1, tzinfo=UTC)}
    often, fresh = make_run(team, **common, rescues=MAX_RESCUES), make_run(team, **common)
    done = make_run(team, status=Status.FINISHED)
    assert restores.lose_active_runs() == 2
    rows = Run.across_teams.order_by("number").values_list("status", "rescues", "owner")
    assert list(rows) == [(Status.LOST, MAX_RESCUES, ""), (Status.LOST, 0, ""), (Status.FINISHED, 0, "")]
    assert [run.number for run in (often, fresh, done)] == [1, 2, 3]


def test_specs_name_the_folders_where_they_are_now() -> None:
    spec = {"output": "/old/runs/1", "policy": {"folder": "/old/runs/2"}, "rewards": ["/old/policies", "/older/runs"], "seed": 1}
    moved = {"/old/runs": "/old/runs/moved", "/old/policies": "/new/policies"}
    there = {"output": "/old/runs/moved/1", "policy": {"folder": "/old/runs/moved/2"}, "rewards": ["/new/policies", "/older/runs"], "seed": 1}
    assert relocate_value(spec, moved) == there
    assert relocate_value(there, moved) == there


# Upgrade


@pytest.fixture
def newer_database(db: None) -> None:
    MigrationRecorder(connection).record_applied("runs", "9999_of_tomorrow")


def test_an_older_version_does_not_start_on_a_newer_database(newer_database: None) -> None:
    words = "migrated by a newer version of the lab: this one does not know runs.9999_of_tomorrow"
    with pytest.raises(Refusal, match=words):
        refuse_newer_database()
    assert words in refuse("worker", "--name", "old")
    assert words in refuse("migrate")
    with pytest.raises(LabError, match=words):
        prepare_database()


def test_every_applied_migration_is_known(db: None) -> None:
    refuse_newer_database()
    assert list_unknown_migrations(["runs.0001_initial", "auth.0001_initial", "gone.0001_initial"]) == ["gone.0001_initial"]


def test_nothing_starts_in_a_lab_that_is_half_restored(db: None, home: Path) -> None:
    get_restore_marker().write_text("0 /backup")
    assert "A restore into" in refuse("worker", "--name", "early")
    with pytest.raises(LabError, match="under way or was interrupted"):
        prepare_database()
    assert os.listdir(home) == ["restore.partial"]
