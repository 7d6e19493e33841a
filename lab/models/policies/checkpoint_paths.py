"""A checkpoint's files: in the run's folder on this machine, else in the store. On the disk the path is checked: below the run's own folder, of two
known forms, and nothing on the way a link.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from django.core.cache import caches

from lab.lib.artifact_store import Manifest, StoreError
from lab.lib.refusals import Refusal
from lab.training.runs.models import Checkpoint
from lab.training.runs.stored_checkpoints import (
    find_local_folder,
    find_stored,
    get_cache,
    is_checkpoint_there,
    is_policy_file,
    name_checkpoint,
    require_store,
)
from trainers.contract.spec import FINAL

OF_THE_TRAINER = frozenset({"trainer_state.json", "counters.json"})  # what only resuming needs
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}", re.ASCII)
ADAPTERS = "adapter_config.json"
MANIFEST_SECONDS = 300


class FilesMissing(Refusal):
    """The files are not there (any more)."""

    def __init__(self, words: str) -> None:
        super().__init__(words, status=404)


@dataclass(frozen=True)
class PolicyFile:
    name: str
    size: int
    changed: int  # nanoseconds
    sha256: str = ""  # as the store has it
    stored_as: str = ""  # the name of its folder in the store; empty on the disk

    @property
    def of_policy(self) -> bool:
        """Whether it leaves the lab with the policy: no optimiser, no random state, nothing pickled."""
        return is_policy_file(self.name) and self.name not in OF_THE_TRAINER


def format_checkpoint_step(checkpoint: Checkpoint) -> str:
    """Within its run: "final policy" or "step 150"."""
    return "final policy" if checkpoint.final else f"step {checkpoint.step}"


def format_checkpoint_label(checkpoint: Checkpoint) -> str:
    """What it is called in sentences and in the audit log. The run must be loaded."""
    return f"{checkpoint.run} · {format_checkpoint_step(checkpoint)}"


def file_name(checkpoint: Checkpoint) -> str:
    """For files made from it: nothing in it comes from a person."""
    return f"run-{checkpoint.run.number}-{FINAL if checkpoint.final else f'step-{checkpoint.step}'}"


def has_checkpoint_files(checkpoint: Checkpoint) -> bool:
    return is_checkpoint_there(checkpoint)


def open_checkpoint(checkpoint: Checkpoint) -> Path:
    """A folder of this machine with the policy's files, fetched first where only the store has them: for a worker, because that takes its time.
    Raises FilesMissing.
    """
    folder = find_local_folder(checkpoint)
    if folder is not None:
        return folder
    stored = find_stored(checkpoint)
    if stored is None:
        raise FilesMissing(f"The files of {format_checkpoint_label(checkpoint)} are no longer on disk.")
    try:
        return get_cache().fetch(require_store(), name_checkpoint(stored), is_policy_file)
    except (StoreError, OSError) as error:
        raise FilesMissing(f"The files of {format_checkpoint_label(checkpoint)} cannot be fetched from the store: {error}.") from None


def files_of(checkpoint: Checkpoint) -> list[PolicyFile]:
    """Plain files of its folder by name; links and folders are left out. Raises FilesMissing."""
    folder = find_local_folder(checkpoint)
    if folder is None:
        return list_stored_files(checkpoint)
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and NAME.fullmatch(entry.name):
                about = entry.stat(follow_symlinks=False)
                files.append(PolicyFile(entry.name, about.st_size, about.st_mtime_ns))
    return sorted(files, key=lambda file: file.name)


def list_stored_files(checkpoint: Checkpoint) -> list[PolicyFile]:
    """Raises FilesMissing."""
    stored = find_stored(checkpoint)
    if stored is None:
        raise FilesMissing(f"The files of {format_checkpoint_label(checkpoint)} are no longer on disk.")
    name = name_checkpoint(stored)
    try:
        manifest = caches["process"].get_or_set(f"stored-files/{name}", lambda: require_store().read_manifest(name), MANIFEST_SECONDS)
    except StoreError as error:
        raise FilesMissing(f"The store cannot be reached: {error}.") from None
    found = manifest.files if isinstance(manifest, Manifest) else []
    return [PolicyFile(file.name, file.size, 0, file.sha256, name) for file in found if NAME.fullmatch(file.name)]


def open_checkpoint_file(checkpoint: Checkpoint, file: PolicyFile) -> BinaryIO:
    """To read ``file`` from; a link put there meanwhile is not followed. Raises FilesMissing."""
    if file.stored_as:
        try:
            return require_store().open_file(file.stored_as, file.name)
        except StoreError as error:
            raise FilesMissing(f"{file.name} cannot be read from the store: {error}.") from None
    folder = find_local_folder(checkpoint)
    try:
        if folder is None:
            raise OSError("gone")
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            number = os.open(file.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
        finally:
            os.close(inside)
    except OSError:
        raise FilesMissing(f"{file.name} no longer exists.") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise FilesMissing(f"{file.name} is not a regular file.")
    return cast(BinaryIO, os.fdopen(number, "rb"))


def read_policy_file(checkpoint: Checkpoint, name: str, most: int = 1 << 20) -> bytes:
    """A small file of the policy. Raises FilesMissing."""
    for file in files_of(checkpoint):
        if file.name == name and file.of_policy and file.size <= most:
            with open_checkpoint_file(checkpoint, file) as stream:
                return stream.read(most)
    raise FilesMissing(f"It has no {name}.")
