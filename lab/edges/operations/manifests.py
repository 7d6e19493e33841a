"""The manifest of a backup: what is in it, with sizes and digests, and what the database said when it was taken. It is written last: a folder
without one is not a backup.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path, PurePosixPath

import msgspec

from lab.lib.refusals import Refusal

MANIFEST, DUMP, PARTIAL = "manifest.json", "database.dump", ".partial"
FORMAT = 1
MANIFEST_BYTES = 1 << 30
ROOTS = ("runs", "datasets", "policies")  # folders of a backup, and of a lab


class StoredFile(msgspec.Struct, frozen=True):
    """``path``: below the backup, with slashes. ``mode``: permission bits it had in the lab; ``modified``: ns since 1970."""

    path: str
    bytes: int
    sha256: str
    mode: int = 0o600
    modified: int = 0


class RunState(msgspec.Struct, frozen=True):
    """A run as the database of the backup has it. ``ingested``: bytes of its spool whose events are in the database; 0 where that file may be on
    another machine, so that nothing is asked of it (lab.training.runs.spool_files).
    """

    id: str
    attempt: int
    step: int
    ingested: int
    outside: bool = False


class Manifest(msgspec.Struct):
    """``server`` and ``tool``: major versions of PostgreSQL and of its pg_dump. ``roots``: where the lab's folders were. ``key``: the fingerprint of
    the secret key. ``audit_head``: of LAB_HOME/audit-head. ``left_out``: what was there and could not be copied, and why.
    """

    format: int
    made_at: datetime
    version: str
    server: int
    tool: int
    migrations: list[str]
    roots: dict[str, str]
    key: str
    with_files: bool
    counts: dict[str, int]
    runs: list[RunState]
    database: StoredFile
    files: list[StoredFile]
    left_out: list[str]
    audit_head: str = ""

    def total_bytes(self) -> int:
        return self.database.bytes + sum(file.bytes for file in self.files)

    def spool_bytes(self, name: str) -> dict[str, int]:
        """Run id → length of the file ``name`` of its folder in the backup."""
        found = {}
        for file in self.files:
            parts = file.path.split("/")
            if len(parts) == 3 and parts[0] == ROOTS[0] and parts[2] == name:
                found[parts[1]] = file.bytes
        return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Whole or not at all, and on the disk when this returns. Raises OSError."""
    part = folder / f"{MANIFEST}{PARTIAL}"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, folder / MANIFEST)


def read_manifest(folder: Path) -> Manifest:
    """Raises Refusal when the folder is no backup, or one that this version cannot read."""
    path = folder / MANIFEST
    try:
        if path.stat().st_size > MANIFEST_BYTES:
            raise Refusal(f"{path} is larger than any manifest.", "Give the folder that manage.py backup wrote.")
        data = path.read_bytes()
    except FileNotFoundError:
        unfinished = folder.name.endswith(PARTIAL) or not folder.exists()
        why = "it was interrupted before it was whole" if folder.name.endswith(PARTIAL) else f"there is no {MANIFEST} in it"
        fix = "Run manage.py backup again, which goes on where it was." if unfinished else "Give the folder that manage.py backup wrote."
        raise Refusal(f"{folder} is not a backup: {'it does not exist' if not folder.exists() else why}.", fix) from None
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror}.", "Give a folder that you may read.") from None
    try:
        if (version := msgspec.json.decode(data, type=dict)["format"]) != FORMAT:
            raise Refusal(f"The backup has format {version}, this version of the lab reads {FORMAT}.", "Restore it with the version that made it.")
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError) as error:
        raise Refusal(f"{path} is not a manifest: {error}.", "The backup is damaged: use another one.") from None
    for file in manifest.files:
        check_stored_path(file.path)
    return manifest


def check_stored_path(path: str) -> None:
    """Nothing that a manifest names lies outside the folders of a lab. Raises Refusal."""
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] not in ROOTS or ".." in parts or "\0" in path:
        raise Refusal(f"The manifest names {path!r}, which is in no folder of a lab.", "The backup was changed: use another one.")
