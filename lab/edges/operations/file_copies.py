"""Copying files of a lab that is in use: each with its digest, private, on the disk when it is said to be there; what is copied already stays."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.edges.operations.manifests import StoredFile
from lab.lib.refusals import Refusal

PIECE = 1 << 20  # bytes
SAY_SECONDS = 5.0
FULL = (errno.ENOSPC, errno.EDQUOT)
SPARE = 64 << 20  # bytes that a copy leaves free on its disk
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class StorageFull(Exception):
    """The disk that is written to has no room; what was written stays, and the next try goes on from there."""


class DamagedFile(Exception):
    """A file of a backup is not what its manifest says."""


def format_bytes(count: int) -> str:
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


class ProgressReport:
    """Says how far a copy is, every few seconds; ``total`` in bytes is an estimate where files grow meanwhile."""

    def __init__(self, say: Callable[[str], None], what: str, total: int) -> None:
        self.say, self.what, self.total = say, what, total
        self.files = self.bytes = 0
        self.next = time.monotonic() + SAY_SECONDS

    def add_bytes(self, count: int) -> None:
        self.bytes += count
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + SAY_SECONDS
            self.say(f"{self.what}: {format_bytes(self.bytes)} of {format_bytes(max(self.total, self.bytes))}, {self.files} files done")


def refuse_without_room(folder: Path, needed: int, what: str) -> None:
    """Before anything is copied. Raises StorageFull."""
    free = shutil.disk_usage(folder).free
    if needed + SPARE > free:
        raise StorageFull(
            f"the disk of {folder} has {format_bytes(free)} free and {what} need {format_bytes(needed)}: free some space or choose another disk"
        )


def copy_file(source: Path, target: Path, name: str, report: ProgressReport, *, follow: bool = False) -> StoredFile | None:
    """Copies the bytes that ``source`` has now; None when it is gone. A copy of the same size and time is kept and read for its digest.

    ``follow``: a link is read; else it is refused like anything else that is no plain file (None). Raises StorageFull, OSError.
    """
    try:
        number = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            return None
        if is_same_file(target, about):
            size, digest = about.st_size, compute_file_digest(target, report)
        else:
            size, digest = write_copy(number, target, about.st_size, report)
            os.utime(target, ns=(about.st_mtime_ns, about.st_mtime_ns))
    finally:
        os.close(number)
    report.files += 1
    return StoredFile(name, size, digest, stat.S_IMODE(about.st_mode), about.st_mtime_ns)


def is_same_file(target: Path, about: os.stat_result) -> bool:
    try:
        there = target.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(there.st_mode) and (there.st_size, there.st_mtime_ns) == (about.st_size, about.st_mtime_ns)


def write_copy(number: int, target: Path, size: int, report: ProgressReport) -> tuple[int, str]:
    """The first ``size`` bytes of an open file, or all if it became shorter: (bytes, SHA-256). Raises StorageFull, OSError."""
    digest, written = hashlib.sha256(), 0
    make_private_folders(target.parent)
    target.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb", buffering=0) as file:
            while written < size and (piece := os.pread(number, min(PIECE, size - written), written)):
                digest.update(piece)
                write_piece(file.fileno(), piece)
                written += len(piece)
                report.add_bytes(len(piece))
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in FULL:
            raise StorageFull(f"the disk of {target} is full: free some space and run the command again, which goes on where it was") from error
        raise
    return written, digest.hexdigest()


def make_private_folders(folder: Path) -> None:
    """With those above that are not there, all of mode 0700; ``mkdir`` alone would leave those above open. Raises OSError."""
    for one in reversed([folder, *folder.parents]):
        if not one.is_dir():
            one.mkdir(mode=0o700)


def write_piece(number: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(number, view) :]


def compute_file_digest(path: Path, report: ProgressReport) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            report.add_bytes(len(piece))
    return digest.hexdigest()


def restore_file(folder: Path, stored: StoredFile, target: Path, report: ProgressReport) -> None:
    """The file of a backup back in its place, with its permission bits and time. Raises DamagedFile, StorageFull, OSError."""
    if is_restored(target, stored) and compute_file_digest(target, report) == stored.sha256:
        report.files += 1
        return
    copied = copy_file(folder / stored.path, target, stored.path, report)
    if copied is None or (copied.bytes, copied.sha256) != (stored.bytes, stored.sha256):
        target.unlink(missing_ok=True)
        why = "is missing" if copied is None else "is not what the manifest says"
        raise DamagedFile(f"{folder / stored.path} {why}: the backup is damaged, use another one")
    target.chmod(0o600 & ~0o200 if not stored.mode & 0o200 else 0o600 | (stored.mode & 0o100))
    os.utime(target, ns=(stored.modified, stored.modified))


def is_restored(target: Path, stored: StoredFile) -> bool:
    try:
        about = target.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(about.st_mode) and (about.st_size, about.st_mtime_ns) == (stored.bytes, stored.modified)


def list_files(root: Path, *, follow: bool = False) -> Iterator[Path]:
    """Every file and link below ``root`` in order of names, as the folders are when it comes to them; folders behind links only to ``follow``."""
    for folder, names, files in os.walk(root, followlinks=follow):
        linked = [] if follow else [name for name in names if (Path(folder) / name).is_symlink()]
        names[:] = sorted(name for name in names if name not in linked)
        for name in sorted([*files, *linked]):
            yield Path(folder) / name


def sum_file_bytes(root: Path, *, follow: bool = False) -> int:
    total = 0
    for path in list_files(root, follow=follow):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def refuse_filled_folder(folder: Path, variable: str) -> None:
    """Raises Refusal when something is in the folder."""
    try:
        first = next(folder.iterdir(), None)
    except FileNotFoundError:
        return
    if first is not None:
        raise Refusal(f"{folder} is not empty: it holds {first.name}.", f"Restore into an empty lab: name another folder in {variable}.")
