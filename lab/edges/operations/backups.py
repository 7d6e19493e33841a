"""A backup of the whole lab while it runs: the database first, as one snapshot, then the files, the manifest last.

Files are only ever ahead of the database then, never behind: a spool older than its ``Run.ingested`` would read as empty, and what is trained later
would be lost without a word. Within a run folder checkpoints come before the spool (a run goes on from a checkpoint, so its steps must have been
reported), and what is written before an event reports it comes after.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings

from lab.edges.operations import file_copies, postgres_tools
from lab.edges.operations.file_copies import ProgressReport, format_bytes
from lab.edges.operations.manifests import DUMP, FORMAT, MANIFEST, PARTIAL, ROOTS, Manifest, RunState, StoredFile, write_manifest
from lab.edges.operations.secret_keys import fingerprint_secret_key, write_secret_key
from lab.lib.client_wheel import VERSION
from lab.lib.private_files import make_private_folder
from lab.lib.refusals import Refusal
from lab.teams.audit.anchor import read_anchor
from trainers.contract.spool import SPOOL

PASSING = (".partial-", ".removed-")  # beginnings of folders that are being written or deleted
UNCOPIED = ("lock", "stop")  # of a run folder: about processes of this machine
CHECKPOINTS = "checkpoints"
AFTER_SPOOL = ("final", "edits", "human")  # the trainer, or the lab, reports them after they are written
COUNTED = {"runs": "runs_run", "rollouts": "trajectories_rollout", "labels": "labels_judgement", "dataset_versions": "datasets_version"}
Say = Callable[[str], None]


def get_lab_roots() -> dict[str, Path]:
    """Where the lab's files are, by the name of their folder in a backup."""
    return dict(zip(ROOTS, map(Path, (settings.RUNS_ROOT, settings.DATASETS_ROOT, settings.POLICIES_ROOT)), strict=True))


@dataclass
class DatabaseFacts:
    """What the snapshot that was dumped says."""

    server: int
    tool: int
    migrations: list[str]
    counts: dict[str, int]
    runs: list[RunState]


@dataclass
class Copies:
    files: list[StoredFile] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def make_backup(target: Path, *, files: bool, key: Path | None, say: Say) -> Manifest:
    """Writes the folder ``target``, named ``.partial`` until it is whole. An interrupted one is gone on with: files that have not changed stay.

    Raises Refusal, file_copies.StorageFull, postgres_tools.PostgresToolError, OSError and database errors.
    """
    target = target.expanduser().resolve()
    refuse_bad_target(target, key)
    server = postgres_tools.read_server_version()
    tools = postgres_tools.find_postgres_tools(server)
    part = target.with_name(target.name + PARTIAL)
    make_private_folder(part)
    with hold_folder(part):
        (part / MANIFEST).unlink(missing_ok=True)
        head = read_anchor()  # before the snapshot: a later one would not be in its chain
        facts = dump_snapshot(part / DUMP, server, tools, say)
        dump = digest_dump(part / DUMP)
        say(f"Database: {format_bytes(dump.bytes)}, {facts.counts['runs']} runs, {facts.counts['rollouts']} rollouts.")
        copies = copy_lab_files(part, say) if files else Copies()
        remove_strangers(part, {DUMP, *(file.path for file in copies.files)})
        copies.left_out += list_short_spools(facts.runs, copies) if files else []
        manifest = Manifest(
            format=FORMAT,
            made_at=datetime.now(UTC),
            version=VERSION,
            server=facts.server,
            tool=facts.tool,
            migrations=facts.migrations,
            roots={name: str(root) for name, root in get_lab_roots().items()},
            key=fingerprint_secret_key(settings.SECRET_KEY),
            with_files=files,
            counts=facts.counts,
            runs=facts.runs,
            database=dump,
            files=copies.files,
            left_out=copies.left_out,
            audit_head=str(head or ""),
        )
        if key:
            write_secret_key(key, settings.SECRET_KEY)
        write_manifest(part, manifest)
        os.rename(part, target)
    return manifest


def refuse_bad_target(target: Path, key: Path | None) -> None:
    if target.exists():
        raise Refusal(f"{target} is already there.", "Name a new folder, for example with the date in its name: a backup is never written over.")
    for root in get_lab_roots().values():
        if target.is_relative_to(root.resolve()):
            raise Refusal(f"{target} is inside {root}, which is backed up.", "Name a folder elsewhere, best on another disk.")
    if key is None:
        return
    key = key.expanduser().resolve()
    if key.exists():
        raise Refusal(f"{key} is already there.", "Name a new file for the key.")
    if key.is_relative_to(target) or key.is_relative_to(target.with_name(target.name + PARTIAL)):
        raise Refusal(f"{key} is inside the backup.", "Keep the key apart: whoever has both can read every secret in the database.")


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Inside, no other backup or restore writes the folder. Raises Refusal, OSError."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise Refusal(f"Another backup or restore is writing {folder}.", "Wait until it has ended.") from None
    try:
        yield
    finally:
        os.close(number)


def dump_snapshot(target: Path, server: int, tools: tuple[Path, int], say: Say) -> DatabaseFacts:
    """The dump, and what the manifest has to know, from one snapshot."""
    with postgres_tools.open_snapshot_connection() as snapshot:
        [[name]] = snapshot.execute("SELECT pg_export_snapshot()").fetchall()
        facts = DatabaseFacts(server, tools[1], *read_snapshot_facts(snapshot))
        postgres_tools.dump_database(tools[0], name, target, say)
    return facts


def read_snapshot_facts(snapshot: psycopg.Connection[Any]) -> tuple[list[str], dict[str, int], list[RunState]]:
    migrations = [row[0] for row in snapshot.execute("SELECT app || '.' || name FROM django_migrations ORDER BY 1")]
    counts = {name: snapshot.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for name, table in COUNTED.items()}  # type: ignore[arg-type] # noqa: S608
    ingested = "CASE WHEN spool_token = '' THEN ingested ELSE 0 END"
    rows = snapshot.execute(f"SELECT id::text, attempt, step, {ingested}, outside FROM runs_run ORDER BY created_at, id")  # type: ignore[arg-type] # noqa: S608
    return migrations, counts, [RunState(*row) for row in rows]


def digest_dump(dump: Path) -> StoredFile:
    size = dump.stat().st_size
    return StoredFile(DUMP, size, file_copies.compute_file_digest(dump, ProgressReport(lambda text: None, "", size)))


def copy_lab_files(part: Path, say: Say) -> Copies:
    roots = get_lab_roots()
    total = sum(file_copies.sum_file_bytes(root, follow=name == "policies") for name, root in roots.items())
    there = sum(file_copies.sum_file_bytes(part / name) for name in ROOTS)
    file_copies.refuse_without_room(part, max(0, total - there), "the lab's files")
    report, copies = ProgressReport(say, "Files", total), Copies()
    for folder in list_run_folders(roots["runs"]):
        copy_run_folder(folder, part / "runs" / folder.name, f"runs/{folder.name}", copies, report)
    for name in ROOTS[1:]:
        copy_tree(roots[name], part / name, name, copies, report, follow=name == "policies")
    say(f"Files: {report.files}, {format_bytes(sum(file.bytes for file in copies.files))}.")
    return copies


def list_run_folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except FileNotFoundError:
        return []


def copy_run_folder(folder: Path, target: Path, name: str, copies: Copies, report: ProgressReport) -> None:
    """In the order that makes the copy a state the run could have been killed in."""
    early = Copies()
    copy_tree(folder, target, name, early, report, skipped=(*AFTER_SPOOL, SPOOL, *UNCOPIED))
    drop_torn_checkpoints(folder, name, early)
    copies.files += early.files
    copies.left_out += early.left_out
    if stored := file_copies.copy_file(folder / SPOOL, target / SPOOL, f"{name}/{SPOOL}", report):
        copies.files.append(stored)
    for late in AFTER_SPOOL:
        copy_tree(folder / late, target / late, f"{name}/{late}", copies, report)


def drop_torn_checkpoints(folder: Path, name: str, copies: Copies) -> None:
    """A checkpoint that the trainer replaced while it was being copied is left out: another one is there, and half of one is none."""
    begin = f"{name}/{CHECKPOINTS}/"
    copied = {file.path[len(begin) :].split("/")[0] for file in copies.files if file.path.startswith(begin)}
    for gone in sorted(one for one in copied if not (folder / CHECKPOINTS / one).is_dir()):
        copies.files = [file for file in copies.files if not file.path.startswith(f"{begin}{gone}/")]
        copies.left_out.append(f"{begin}{gone}: replaced by a newer one meanwhile")


def copy_tree(
    root: Path, target: Path, name: str, copies: Copies, report: ProgressReport, *, skipped: tuple[str, ...] = (), follow: bool = False
) -> None:
    """What passes meanwhile is left out without a word; links and what is no plain file are named."""
    for path in file_copies.list_files(root, follow=follow):
        below = path.relative_to(root)
        if below.parts[0] in skipped or any(part.startswith(PASSING) for part in below.parts):
            continue
        stored = file_copies.copy_file(path, target / below, f"{name}/{below.as_posix()}", report, follow=follow)
        if stored:
            copies.files.append(stored)
        elif os.path.lexists(path):
            copies.left_out.append(f"{name}/{below.as_posix()}: a link or no plain file")


def remove_strangers(part: Path, named: set[str]) -> None:
    """What an interrupted backup had copied and the lab no longer has; whatever the manifest does not name is not in the backup."""
    for path in list(file_copies.list_files(part)):
        if path.relative_to(part).as_posix() not in named:
            path.unlink()
    for folder, _, _ in os.walk(part, topdown=False):
        if Path(folder) != part and not os.listdir(folder):
            os.rmdir(folder)


def list_short_spools(runs: list[RunState], copies: Copies) -> list[str]:
    """Runs that were deleted between the snapshot and the copy: a restore has to be told what to do with them."""
    begin = f"{ROOTS[0]}/"
    lengths = {file.path: file.bytes for file in copies.files if file.path.endswith(f"/{SPOOL}")}
    short = [run for run in runs if lengths.get(f"{begin}{run.id}/{SPOOL}", 0) < run.ingested]
    return [f"{begin}{run.id}/{SPOOL}: {format_bytes(run.ingested)} of it are in the database and its file is shorter or gone" for run in short]
