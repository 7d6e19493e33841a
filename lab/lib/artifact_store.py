"""Folders of files kept where every machine reaches them: below a URL of fsspec (``file://``, ``s3://``, …), whole or not there.

A folder's files come first, ``manifest.json`` (names, sizes, SHA-256) last: whoever finds a manifest finds everything that it names, and what has
none does not count. A folder is put once under its name and never changed; files are streamed in pieces, so memory does not grow with their size.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

import msgspec

from lab.lib.redaction import redact_secrets

MANIFEST = "manifest.json"
PIECE = 1 << 20  # bytes read at once
PART = 16 << 20  # bytes of a part of an upload in several, where the store has those
MOST_FILES, LONGEST_NAME = 20_000, 200
MOST_MANIFEST = 16 << 20
FORBIDDEN = frozenset('\\*?[]{}"<>|')  # what stores or fsspec would take for a pattern, besides what no name may have
PACKAGES = {"s3fs": "s3fs", "gcsfs": "gcsfs", "adlfs": "adlfs", "huggingface_hub": "huggingface_hub", "sshfs": "sshfs", "paramiko": "paramiko"}
TIMEOUTS = {"config_kwargs": {"connect_timeout": 5, "read_timeout": 60, "retries": {"max_attempts": 3}}}
OPTIONS: dict[str, dict[str, Any]] = {
    "file": {"auto_mkdir": True},
    "s3": {"use_listings_cache": False, "default_block_size": PART, **TIMEOUTS},
}


class StoreError(Exception):
    """The store, or a file on the way, failed; one readable line without secrets. Another try may succeed."""


class DamagedError(StoreError):
    """What came is not what the manifest says."""


class StoredFile(msgspec.Struct, frozen=True):
    """``name``: below its folder, parts separated by ``/``; ``size``: bytes."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    files: list[StoredFile]
    version: int = 1

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Watch:
    """What a long transfer asks and tells on its way. ``is_cancelled`` ends it with StoreError; ``count`` hears of bytes."""

    is_cancelled: Callable[[], bool] = lambda: False
    count: Callable[[int], None] = lambda size: None

    def note(self, size: int) -> None:
        if self.is_cancelled():
            raise StoreError("the transfer was cancelled")
        self.count(size)


QUIET = Watch()


def find_url_problem(url: str) -> str:
    """Why the URL names no store; empty for a good one. Imports nothing of the store's."""
    import fsspec  # takes a tenth of a second, which a lab without a store need not wait
    from fsspec.registry import known_implementations

    protocol, separator, place = url.partition("://")
    if not separator or not place.strip("/"):
        return "is no URL of fsspec, such as file:///srv/lab-store or s3://bucket/prefix"
    known = known_implementations.get(protocol)
    if known is None or protocol in ("memory", "data", "http", "https"):
        return f"names no store that files can be put into by {protocol}://"
    module = known["class"].partition(".")[0]
    if module != "fsspec" and find_spec(module) is None:
        version = f"=={fsspec.__version__}" if module in ("s3fs", "gcsfs") else ""
        return f"needs a package that is not installed: pip install {PACKAGES.get(module, module)}{version}"
    return ""


def find_name_problem(name: str) -> str:
    """Why a name is none in a store; empty for a good one. No part leads out, is hidden from a listing or is read as a pattern."""
    parts = name.split("/")
    for part in parts:
        if part in ("", ".", "..") or len(part) > LONGEST_NAME or any(letter in FORBIDDEN or not letter.isprintable() for letter in part):
            return f"{name[:80]!r} is no name of a file in the store"
    return "" if len(parts) <= 12 else f"{name[:80]!r} lies too deep"


class ArtifactStore:
    """``root``: the URL without its protocol. Safe in threads: each call makes its own files."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url.rstrip("/")
        protocol = self.url.partition("://")[0]
        try:
            self.filesystem, root = fsspec.core.url_to_fs(self.url, **OPTIONS.get(protocol, {}))
        except Exception as error:
            raise explain_store_error(error, f"{protocol}://") from error
        self.root = str(root).rstrip("/")

    def locate(self, name: str) -> str:
        """The address of a name. Raises StoreError for one that is none."""
        if problem := find_name_problem(name):
            raise StoreError(problem)
        return f"{self.root}/{name}"

    def put_folder(self, folder: Path, name: str, watch: Watch = QUIET) -> Manifest:
        """The plain files below ``folder`` as ``name``; nothing is sent where that is whole already. Links are left out. Raises StoreError."""
        if (there := self.read_manifest(name)) is not None:
            return there
        return self.put_files({file: folder / file for file in list_plain_files(folder)}, name, watch)

    def put_files(self, files: dict[str, Path], name: str, watch: Watch = QUIET) -> Manifest:
        """``files``: name below ``name`` → where it lies. Raises StoreError, then there is no manifest."""
        stored = [self._put_file(path, f"{name}/{file}", file, watch) for file, path in sorted(files.items())]
        manifest = Manifest(stored)
        with translate_errors(name):
            self.filesystem.pipe_file(self.locate(f"{name}/{MANIFEST}"), msgspec.json.encode(manifest))
        return manifest

    def _put_file(self, path: Path, target: str, name: str, watch: Watch) -> StoredFile:
        digest, size, address = hashlib.sha256(), 0, self.locate(target)
        with translate_errors(target), path.open("rb") as source:
            before = os.fstat(source.fileno())
            with self.filesystem.open(address, "wb") as out:
                while piece := source.read(PIECE):
                    watch.note(len(piece))
                    digest.update(piece)
                    out.write(piece)
                    size += len(piece)
            after = os.stat(path)
            if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, size, after.st_mtime_ns):
                raise StoreError(f"{path.name} changed while it was stored")
        return StoredFile(name, size, digest.hexdigest())

    def read_manifest(self, name: str) -> Manifest | None:
        """None where nothing whole has that name. Raises StoreError."""
        with translate_errors(name):
            try:
                with self.filesystem.open(self.locate(f"{name}/{MANIFEST}"), "rb") as file:
                    data = file.read(MOST_MANIFEST + 1)
            except FileNotFoundError:
                return None
        return decode_manifest(data, name)

    def fetch_folder(self, name: str, target: Path, manifest: Manifest, watch: Watch = QUIET) -> None:
        """The files of a manifest as the folder ``target``, which is not there before and is whole afterwards. Raises StoreError."""
        part = target.with_name(f".{target.name}.{uuid4().hex[:8]}.part")
        try:
            with translate_errors(name):
                part.mkdir(parents=True)
                for file in manifest.files:
                    path = part / file.name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("xb") as out:
                        for piece in self.stream_file(name, file):
                            watch.note(len(piece))
                            out.write(piece)
                part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def stream_file(self, name: str, file: StoredFile) -> Iterator[bytes]:
        """A file in pieces. Raises StoreError, DamagedError at its end or past it where size or digest are not the manifest's."""
        digest, left = hashlib.sha256(), file.size
        with translate_errors(f"{name}/{file.name}"), self.filesystem.open(self.locate(f"{name}/{file.name}"), "rb") as source:
            while piece := source.read(min(PIECE, left + 1)):
                left -= len(piece)
                if left < 0:
                    break
                digest.update(piece)
                yield piece
        if left or digest.hexdigest() != file.sha256:
            raise DamagedError(f"{name}/{file.name} in the store is not what its manifest says")

    def open_file(self, name: str, file: str) -> BinaryIO:
        """A file to read and seek in, as it is in the store. Raises StoreError."""
        with translate_errors(f"{name}/{file}"):
            return cast(BinaryIO, self.filesystem.open(self.locate(f"{name}/{file}"), "rb", block_size=PART))

    def sign_file(self, name: str, file: str, seconds: int) -> str:
        """An address that gives the file to whoever has it, for so long; empty where the store has none. Raises StoreError."""
        with translate_errors(name):
            try:
                return str(self.filesystem.sign(self.locate(f"{name}/{file}"), expiration=seconds))
            except NotImplementedError:
                return ""

    def list_folders(self, prefix: str) -> list[str]:
        """Names of the whole folders below a prefix. Raises StoreError."""
        with translate_errors(prefix):
            self.filesystem.invalidate_cache()
            found = self.filesystem.find(self.locate(prefix))
        start, end = len(self.root) + 1, f"/{MANIFEST}"
        return sorted(path[start : -len(end)] for path in found if path.endswith(end))

    def delete_folder(self, name: str) -> None:
        """All below a name, manifests first, so that half of it counts as nothing. Raises StoreError."""
        with translate_errors(name):
            self.filesystem.invalidate_cache()
            address = self.locate(name)
            found = [path for path in self.filesystem.find(address) if path.startswith(f"{address}/")]
            for path in sorted(found, key=lambda path: not path.endswith(f"/{MANIFEST}")):
                self.filesystem.rm_file(path)
            if self.filesystem.protocol[0] == "file" and os.path.isdir(address):
                shutil.rmtree(address, ignore_errors=True)  # folders without files; of other stores they are not there


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Raises DamagedError."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"the manifest of {name} cannot be read: {error}") from None
    names = [file.name for file in manifest.files]
    wrong = next((problem for problem in map(find_name_problem, names) if problem), "")
    if wrong or len(names) > MOST_FILES or len(set(names)) < len(names) or any(file.size < 0 for file in manifest.files) or len(data) > MOST_MANIFEST:
        raise DamagedError(f"the manifest of {name} cannot be used: {wrong or 'its files'}")
    return manifest


def list_plain_files(folder: Path) -> list[str]:
    """Files below a folder, ``/`` between parts; links are left out. Raises StoreError where there are too many, or a name is none."""
    names: list[str] = []
    with translate_errors(folder.name):
        for place, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not (Path(place) / name).is_symlink()]
            names += [(Path(place) / name).relative_to(folder).as_posix() for name in files if is_plain_file(Path(place) / name)]
        if not names and not folder.is_dir():
            raise FileNotFoundError(folder)
    if len(names) > MOST_FILES:
        raise StoreError(f"{folder.name} has more than {MOST_FILES:,} files")
    if problem := next((problem for problem in map(find_name_problem, names) if problem), ""):
        raise StoreError(problem)
    if MANIFEST in names:
        raise StoreError(f"{folder.name} has a file {MANIFEST}, which is the store's own: rename it")
    return names


def is_plain_file(path: Path) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode)


class translate_errors:  # reads as a function
    """Whatever a store's library raises becomes a StoreError."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, StoreError):
            raise explain_store_error(error, self.name) from error


def explain_store_error(error: Exception, name: str) -> StoreError:
    """Without the address, which is nothing that people of a team need to know."""
    told = error.strerror if isinstance(error, OSError) else ""
    words = " ".join(str(told or error).split()) or type(error).__name__
    return StoreError(redact_secrets(f"{name}: {words}")[:300])


@cache
def _open_store(url: str, pid: int) -> ArtifactStore:
    return ArtifactStore(url)


def open_store(url: str) -> ArtifactStore | None:
    """The store of a URL, one for a process (connections do not survive a fork); None without a URL. Raises StoreError."""
    return _open_store(url, os.getpid()) if url else None
