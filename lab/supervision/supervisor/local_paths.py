"""The paths of a spec on the machine that trains: what the machines share may be mounted there under another name than where the run was launched."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.training.runs.models import Run

# Where a spec holds a path, the setting of the root that it lies below, and how many names it has below that root: datasets lie in a folder a team.
PATHS = (
    (("policy", "folder"), "RUNS_ROOT", 1),
    (("policy", "path"), "POLICIES_ROOT", 1),
    (("teacher", "folder"), "RUNS_ROOT", 1),
    (("teacher", "path"), "POLICIES_ROOT", 1),
    (("dataset", "path"), "DATASETS_ROOT", 2),
    (("task", "file", "path"), "DATASETS_ROOT", 3),
)


def localize_spec_paths(run: Run) -> dict[str, Any]:
    """The run's spec as this machine reads it. The run's own folder is where this machine has it. Any other path stays as it is where it exists here,
    which is also true of what a command line gave; otherwise it is the same file below this machine's root, where that exists. What is nowhere keeps
    the name that the launch gave it: the trainer refuses it by that name.
    """
    spec = copy.deepcopy(run.spec)
    if "output" in spec:
        spec["output"] = str(run.folder)
    for names, root, depth in PATHS:
        part: Any = spec
        for name in names[:-1]:
            part = part.get(name) if isinstance(part, dict) else None
        if isinstance(part, dict) and isinstance(part.get(names[-1]), str):
            part[names[-1]] = find_local_path(part[names[-1]], Path(getattr(settings, root)), depth)
    return spec


def find_local_path(path: str, root: Path, depth: int) -> str:
    local = root.joinpath(*Path(path).parts[-depth:])
    return str(local) if not Path(path).exists() and local.exists() else path
