"""Paths in specs after a lab has moved: a spec names its run folder, the policy and the dataset by absolute paths below the lab's folders."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.training.ablations.models import Ablation
from lab.training.runs.models import Run
from lab.training.sweeps.models import Sweep
from trainers.contract.spec import RUN_FILE

HELD = (RUN_FILE, "adapter_config.json")  # files of run folders that name other folders
FILE_BYTES = 64 << 20


def relocate_lab_paths(moved: Mapping[str, str]) -> int:
    """``moved``: old folder → new one. Returns how many rows changed. Raises OSError and database errors; may be called again."""
    changed = 0
    for model in (Run, Ablation, Sweep):
        for pk, spec in model.across_teams.values_list("pk", "spec").iterator():  # type: ignore[attr-defined]
            if (relocated := relocate_value(spec, moved)) != spec:
                model.across_teams.filter(pk=pk).update(spec=relocated)  # type: ignore[attr-defined]
                changed += 1
    for path in list_held_files():
        relocate_file(path, moved)
    return changed


def relocate_value(value: Any, moved: Mapping[str, str]) -> Any:
    """The value with every text that is one of the old folders, or a path below it, below the new one."""
    if isinstance(value, dict):
        return {key: relocate_value(item, moved) for key, item in value.items()}
    if isinstance(value, list):
        return [relocate_value(item, moved) for item in value]
    if isinstance(value, str) and value.startswith("/") and not any(is_below(value, new) for new in moved.values()):
        for old in sorted(moved, key=len, reverse=True):  # the innermost of folders inside each other
            if is_below(value, old):
                return moved[old] + value[len(old) :]
    return value


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def list_held_files() -> Iterator[Path]:
    for folder, _, names in os.walk(settings.RUNS_ROOT):
        yield from (Path(folder) / name for name in HELD if name in names)


def relocate_file(path: Path, moved: Mapping[str, str]) -> None:
    """Whole or as it was. What is no JSON stays as it is."""
    if path.is_symlink() or path.stat().st_size > FILE_BYTES:
        return
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        return
    if (relocated := relocate_value(value, moved)) == value:
        return
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(relocated, indent=2) + "\n")
    part.chmod(0o600)
    os.replace(part, path)
