"""Machines that share no folder, in one process: each has run folders, caches and roots of its own, and the same store."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.lib.artifact_store import ArtifactStore
from lab.supervision.supervisor import trainer_process
from lab.training.runs.models import Run


class Machine:
    def __init__(self, settings: Any, root: Path) -> None:
        self.settings, self.root = settings, root

    @contextmanager
    def here(self) -> Iterator[None]:
        """What is done inside is done on this machine."""
        names = {"RUNS_ROOT": "runs", "POLICIES_ROOT": "policies", "DATASETS_ROOT": "datasets", "STORE_CACHE": "cache"}
        before = {name: getattr(self.settings, name) for name in names}
        for name, folder in names.items():
            setattr(self.settings, name, self.root / folder)
        try:
            yield
        finally:
            for name, folder in before.items():
                setattr(self.settings, name, folder)

    def folder(self, run: Run) -> Path:
        return self.root / "runs" / str(run.pk)

    def kill_trainer(self, run: Run) -> None:
        if (pid := trainer_process.lock_holder(self.folder(run))) is not None:
            os.kill(pid, signal.SIGKILL)


def names_in_store(url: str, prefix: str = "runs") -> list[str]:
    return ArtifactStore(url).list_folders(prefix)
