"""Folders of the store on this machine's disk, up to a size: those that were not asked for longest go first.

An entry is named after what its manifest says, so that another folder under the same name is another entry. One that was asked for a moment ago
stays: somebody is about to read it. What is read from it stays readable when it goes, because an open or linked file outlives its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.lib.artifact_store import QUIET, ArtifactStore, Manifest, StoreError, Watch
from lab.lib.folders import link_or_copy

USED_SECONDS = 600.0  # an entry asked for so recently is not taken away
EMPTYING = "lock"


@dataclass(frozen=True)
class CacheEntry:
    path: Path
    size: int
    used: float  # seconds since 1970


@dataclass(frozen=True)
class ArtifactCache:
    """``limit``: bytes of all entries."""

    root: Path
    limit: int

    def fetch(self, store: ArtifactStore, name: str, wanted: Callable[[str], bool] = lambda name: True, watch: Watch = QUIET) -> Path:
        """The folder of ``name``, of its files those ``wanted``. Raises StoreError, also where nothing whole has that name."""
        manifest = store.read_manifest(name)
        if manifest is None:
            raise StoreError(f"{name} is not in the store")
        manifest = Manifest([file for file in manifest.files if wanted(file.name)])
        entry = self.root / name_entry(name, manifest)
        with self.lock(f"{entry.name}.lock"):  # of two who ask at once one fetches
            if not entry.is_dir():
                self.make_room(manifest.size)
                store.fetch_folder(name, entry, manifest, watch)
            os.utime(entry)
        return entry

    def make_room(self, size: int) -> None:
        """Takes entries away until ``size`` more bytes fit. Raises StoreError where they never do."""
        if size > self.limit:
            raise StoreError(f"{size / 1e9:.1f} GB do not fit into the cache of {self.limit / 1e9:.1f} GB: raise LAB_STORE_CACHE_GB")
        with self.lock(EMPTYING):
            entries = self.list_entries()
            free = self.limit - sum(entry.size for entry in entries)
            for entry in sorted(entries, key=lambda entry: entry.used):
                if free >= size:
                    return
                if time.time() - entry.used > USED_SECONDS:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    free += entry.size
            if free < size:
                raise StoreError(f"the cache of {self.limit / 1e9:.1f} GB is in use: raise LAB_STORE_CACHE_GB, or try again in a while")

    def list_entries(self) -> list[CacheEntry]:
        entries = []
        for path in self.root.iterdir() if self.root.is_dir() else ():
            if path.is_dir() and not path.name.startswith("."):
                size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                entries.append(CacheEntry(path, size, path.stat().st_mtime))
        return entries

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.root / name).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def name_entry(name: str, manifest: Manifest) -> str:
    whole = hashlib.sha256(name.encode())
    for file in manifest.files:
        whole.update(f"\n{file.name} {file.size} {file.sha256}".encode())
    return whole.hexdigest()[:32]


def link_folder(source: Path, target: Path) -> None:
    """``target`` with the files of a cache entry, which stay when the entry goes. Raises OSError."""
    shutil.copytree(source, target, copy_function=link_or_copy)
