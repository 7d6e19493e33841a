"""Where a checkpoint lies on the disk. The path is checked: below the run's own folder, of two known forms, and nothing on the way a link."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from lab.lib.refusals import Refusal
from lab.training.runs.models import Checkpoint
from trainers.contract.spec import FINAL

PATH = re.compile(r"final|checkpoints/checkpoint-[0-9]{1,10}", re.ASCII)
WEIGHTS = (".safetensors",)
POLICY_FILES = (*WEIGHTS, ".json", ".txt", ".model", ".jinja")
OF_THE_TRAINER = frozenset({"trainer_state.json", "counters.json"})  # what only resuming needs
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}", re.ASCII)
ADAPTERS = "adapter_config.json"


class FilesMissing(Refusal):
    """The files are not there (any more)."""

    def __init__(self, words: str) -> None:
        super().__init__(words, status=404)


@dataclass(frozen=True)
class PolicyFile:
    name: str
    size: int
    changed: int  # nanoseconds

    @property
    def of_policy(self) -> bool:
        """Whether it leaves the lab with the policy: no optimiser, no random state, nothing pickled."""
        return self.name.endswith(POLICY_FILES) and self.name not in OF_THE_TRAINER


def format_checkpoint_step(checkpoint: Checkpoint) -> str:
    """Within its run: "final policy" or "step 150"."""
    return "final policy" if checkpoint.final else f"step {checkpoint.step}"


def format_checkpoint_label(checkpoint: Checkpoint) -> str:
    """What it is called in sentences and in the audit log. The run must be loaded."""
    return f"{checkpoint.run} · {format_checkpoint_step(checkpoint)}"


def file_name(checkpoint: Checkpoint) -> str:
    """For files made from it: nothing in it comes from a person."""
    return f"run-{checkpoint.run.number}-{FINAL if checkpoint.final else f'step-{checkpoint.step}'}"


def folder_of(checkpoint: Checkpoint) -> Path | None:
    """None when it is gone, or when anything below the runs' root is a link or no folder."""
    if not PATH.fullmatch(checkpoint.path):
        return None
    folder = Path(settings.RUNS_ROOT)
    for part in (str(checkpoint.run_id), *checkpoint.path.split("/")):
        folder /= part
        try:
            status = os.lstat(folder)
        except OSError:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
    return folder


def has_checkpoint_files(checkpoint: Checkpoint) -> bool:
    return folder_of(checkpoint) is not None


def files_of(checkpoint: Checkpoint) -> list[PolicyFile]:
    """Plain files of its folder by name; links and folders are left out. Raises FilesMissing."""
    folder = folder_of(checkpoint)
    if folder is None:
        raise FilesMissing(f"The files of {format_checkpoint_label(checkpoint)} are no longer on disk.")
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and NAME.fullmatch(entry.name):
                about = entry.stat(follow_symlinks=False)
                files.append(PolicyFile(entry.name, about.st_size, about.st_mtime_ns))
    return sorted(files, key=lambda file: file.name)


def open_checkpoint_file(checkpoint: Checkpoint, file: PolicyFile) -> int:
    """A file descriptor to read ``file`` from; a link put there meanwhile is not followed. Raises FilesMissing."""
    folder = folder_of(checkpoint)
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
    return number


def read_policy_file(checkpoint: Checkpoint, name: str, most: int = 1 << 20) -> bytes:
    """A small file of the policy. Raises FilesMissing."""
    for file in files_of(checkpoint):
        if file.name == name and file.of_policy and file.size <= most:
            with os.fdopen(open_checkpoint_file(checkpoint, file), "rb") as stream:
                return stream.read(most)
    raise FilesMissing(f"It has no {name}.")
