"""A backup into an empty lab: files first, then the database in one transaction, so that at no moment the database is ahead of a spool.

``LAB_HOME/restore.partial`` stands while it is under way: workers and ``manage.py up`` refuse to start, and the same command goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models.functions import Now

from lab.edges.operations import file_copies, postgres_tools, secret_keys
from lab.edges.operations.backups import get_lab_roots, hold_folder
from lab.edges.operations.file_copies import DamagedFile, ProgressReport, format_bytes
from lab.edges.operations.manifests import MANIFEST, Manifest, read_manifest
from lab.edges.operations.relocations import relocate_lab_paths
from lab.edges.operations.spool_checks import find_short_spools, mend_short_spools, refuse_short_spools
from lab.lib.half_restored import get_restore_marker
from lab.lib.known_migrations import list_unknown_migrations, name_migrations
from lab.lib.refusals import Refusal
from lab.teams.audit.anchor import write_anchor
from lab.teams.audit.chain import Head
from lab.training.runs.models import ACTIVE, Run, Status

Say = Callable[[str], None]
VARIABLES = {"runs": "LAB_RUNS", "datasets": "LAB_DATASETS", "policies": "LAB_POLICIES"}


@dataclass(frozen=True)
class RestoreReport:
    """``lost``: runs that trained when the backup was made and wait for a worker now. ``mended``: runs whose spool was too short.
    ``unreadable``: secrets that need another key, in words.
    """

    manifest: Manifest
    lost: int
    mended: int
    unreadable: list[str]
    same_key: bool


def restore_backup(source: Path, *, files: bool, key: Path | None, repair: bool, say: Say) -> RestoreReport:
    """Raises Refusal before anything is written where the backup or the lab does not suit; DamagedFile, file_copies.StorageFull,
    postgres_tools.PostgresToolError, OSError and database errors later, and the same call goes on then.
    """
    source = source.expanduser().resolve()
    manifest = read_manifest(source)
    files = files and manifest.with_files
    secret = secret_keys.read_secret_key(key) if key else ""
    if secret and secret_keys.fingerprint_secret_key(secret) != manifest.key:
        raise Refusal(f"{key} is not the key of this backup.", "Give the file that was written with it, or leave --key out.", field="--key")
    with hold_folder(Path(settings.HOME)):
        tools = check_versions(manifest)
        marker = get_restore_marker()
        begun = read_marker(marker, source)
        refuse_lab_in_use(files, begun)
        short = find_short_spools(manifest, in_backup=files)
        if short and not repair:
            refuse_short_spools(short)
        write_marker(marker, source)
        if files:
            restore_files(source, manifest, say)
        mended = mend_short_spools(short)
        if not (begun and has_tables()):
            restore_dump(source, manifest, tools, say)
        lost = finish_restore(manifest, say)
        same = keep_key(secret, manifest)
        marker.unlink()
    return RestoreReport(manifest, lost, mended, [] if same else secret_keys.list_unreadable_secrets(), same)


def check_versions(manifest: Manifest) -> Path:
    """The folder of the tools to restore with. Raises Refusal."""
    if unknown := list_unknown_migrations(manifest.migrations):
        raise Refusal(
            f"The backup was made by a newer version of the lab ({manifest.version}): this one does not know {name_migrations(unknown)}.",
            "Restore it with that version or a later one.",
        )
    server = postgres_tools.read_server_version()
    if server < manifest.server:
        raise Refusal(
            f"The backup is of PostgreSQL {manifest.server}, this lab has {server}: no database goes into an older major version.",
            f"Restore it into PostgreSQL {manifest.server} or later.",
        )
    return postgres_tools.find_postgres_tools(max(server, manifest.tool))[0]


def refuse_lab_in_use(files: bool, begun: bool) -> None:
    """Raises Refusal unless database and folders are empty, or hold what an interrupted restore of the same backup put there."""
    if begun:
        return
    if has_tables():
        raise Refusal(
            "This lab is in use: its database has tables.",
            "Restore into an empty one: LAB_HOME=/another/folder manage.py restore …, or a new database in DATABASE_URL.",
        )
    for name, root in get_lab_roots().items() if files else ():
        file_copies.refuse_filled_folder(root, VARIABLES[name])


def has_tables() -> bool:
    return bool(connection.introspection.table_names())


def read_marker(marker: Path, source: Path) -> bool:
    """Whether a restore of this backup was interrupted here. Raises Refusal when it was one of another."""
    try:
        told = marker.read_text().strip()
    except FileNotFoundError:
        return False
    if told != describe_backup(source):
        raise Refusal(
            f"Another restore was interrupted here: of {told.partition(' ')[2]}.",
            "Finish it with the same command, or choose an empty LAB_HOME.",
        )
    return True


def write_marker(marker: Path, source: Path) -> None:
    with os.fdopen(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(describe_backup(source) + "\n")
        file.flush()
        os.fsync(file.fileno())


def describe_backup(source: Path) -> str:
    manifest = source / MANIFEST
    return f"{file_copies.compute_file_digest(manifest, ProgressReport(lambda text: None, '', 0))} {source}"


def restore_files(source: Path, manifest: Manifest, say: Say) -> None:
    total, roots = sum(file.bytes for file in manifest.files), get_lab_roots()
    there = sum(file_copies.sum_file_bytes(root) for root in roots.values())
    for root in roots.values():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    file_copies.refuse_without_room(roots["runs"], max(0, total - there), "the backup's files")
    report = ProgressReport(say, "Files", total)
    for file in manifest.files:
        name, _, below = file.path.partition("/")
        file_copies.restore_file(source, file, roots[name] / below, report)
    say(f"Files: {report.files}, {format_bytes(total)}, all as the manifest says.")


def restore_dump(source: Path, manifest: Manifest, tools: Path, say: Say) -> None:
    dump, stored = source / manifest.database.path, manifest.database
    digest = file_copies.compute_file_digest(dump, ProgressReport(say, "Database: checked", stored.bytes)) if dump.is_file() else ""
    if digest != stored.sha256:
        raise DamagedFile(f"{dump} is {'not what the manifest says' if digest else 'missing'}: the backup is damaged, use another one")
    connection.close()
    postgres_tools.restore_database(tools, dump, say)
    say(f"Database: {', '.join(f'{count} {name}'.replace('_', ' ') for name, count in manifest.counts.items())}.")


def finish_restore(manifest: Manifest, say: Say) -> int:
    """Brings the schema up to date, names where the files are now, gives up the leases; how many runs wait for a worker again."""
    call_command("migrate", verbosity=0)
    moved = {old: str(get_lab_roots()[name]) for name, old in manifest.roots.items() if name in VARIABLES and old != str(get_lab_roots()[name])}
    if moved and (changed := relocate_lab_paths(moved)):
        say(f"Paths: the specs of {changed} runs, ablations and sweeps name the new folders.")
    if manifest.audit_head:
        write_anchor(Head.read(manifest.audit_head))
    return lose_active_runs()


def lose_active_runs() -> int:
    """Runs whose trainers were left behind: their leases end now, and the next worker goes on from the last checkpoint. That this is no fault of
    theirs does not count as a rescue.
    """
    with transaction.atomic():
        active = list(Run.across_teams.filter(status__in=ACTIVE))
        Run.across_teams.filter(status__in=ACTIVE).update(lease_until=Now() - timedelta(seconds=1))
        rescued = {run.pk: run.rescues for run in active}
        for run in active:
            run.rescues = 0
            run.lose()
        for pk, rescues in rescued.items():
            Run.across_teams.filter(pk=pk).update(rescues=rescues)
    return sum(run.status == Status.LOST for run in active)


def keep_key(secret: str, manifest: Manifest) -> bool:
    """Puts the key in its place where the lab keeps its own; whether the lab will run with the key of the backup."""
    if secret and os.environ.get("LAB_EMBEDDED") == "1" and not os.environ.get("SECRET_KEY"):
        secret_keys.replace_secret_key(Path(settings.HOME) / "secret-key", secret)
        return True
    return secret_keys.fingerprint_secret_key(settings.SECRET_KEY) == manifest.key
