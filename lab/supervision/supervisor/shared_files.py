"""Datasets, files of tasks and policies that lie on one machine go into the store, for workers elsewhere. Each machine's worker puts what is below
its own roots: what the lab writes there at once, what a person copies in once it is left alone.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from lab.data.tasks.models import FOLDER
from lab.lib.artifact_store import ArtifactStore, StoreError, list_plain_files
from lab.training.runs.stored_checkpoints import require_store

log = logging.getLogger(__name__)

LOOK_SECONDS = 15.0  # between two looks
SETTLED_SECONDS = 60.0  # since the last change of what can be written to
SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".tsv", ".txt")


class SharedFiles:
    """``known``: what is in the store, so that it is asked once."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.next_look = 0.0

    def store(self) -> None:
        """One round; what fails is tried again in the next."""
        if not settings.STORE_URL or time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + LOOK_SECONDS
        try:
            store = require_store()
            for name, files in list_shared_files():
                if name not in self.known:
                    self.put(store, name, files)
        except (StoreError, OSError) as error:
            log.warning("files are not in the store yet: %s", error)

    def put(self, store: ArtifactStore, name: str, files: dict[str, Path]) -> None:
        there = store.read_manifest(name)
        if there is None and all(map(is_settled, files.values())):
            there = store.put_files(files, name)
            log.info("%s is in the store (%d bytes)", name, there.size)
        if there is None:
            return
        if {file.name: file.size for file in there.files} != {file: path.stat().st_size for file, path in files.items()}:
            log.warning("%s has changed on this machine: workers elsewhere keep what the store has. Give what is new a new name.", name)
        self.known.add(name)


def list_shared_files() -> Iterator[tuple[str, dict[str, Path]]]:
    """(name in the store, name below it → file) of what lies below this machine's roots."""
    for folder in list_folders(Path(settings.POLICIES_ROOT)):
        if files := {name: folder / name for name in list_plain_files(folder)}:
            yield f"policies/{folder.name}", files
    root = Path(settings.DATASETS_ROOT)
    for team in list_folders(root):
        if team.name.isdecimal():
            for path in [*list_files(team), *list_files(team / FOLDER)]:
                yield f"datasets/{path.relative_to(root).as_posix()}", {path.name: path}


def list_folders(root: Path) -> list[Path]:
    return [path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith(".")] if root.is_dir() else []


def list_files(folder: Path) -> list[Path]:
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in names if path.is_file() and not path.is_symlink() and not path.name.startswith(".") and path.suffix in SUFFIXES]


def is_settled(path: Path) -> bool:
    """Read-only, as the lab leaves what it has written whole, or not changed for a while."""
    about = os.stat(path)
    return not about.st_mode & 0o222 or time.time() - max(about.st_mtime, about.st_ctime) > SETTLED_SECONDS


shared_files = SharedFiles()


def store_shared_files() -> None:
    """One round of a worker."""
    shared_files.store()
