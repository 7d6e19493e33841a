"""The paths of a spec on the machine that trains: what the machines share may be mounted there under another name than where the run was launched,
and what they do not share is fetched from the store into the run folder.
"""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings

from lab.lib.artifact_cache import link_folder
from lab.lib.artifact_store import StoreError, Watch
from lab.training.runs.models import Checkpoint, Run
from lab.training.runs.stored_checkpoints import get_cache, get_store, is_policy_file, name_checkpoint, name_run, require_store
from trainers.contract.spec import FINAL, RUN_FILE

INPUTS = "inputs"  # of a run folder: what was fetched for the run
RUNS, POLICIES, DATASETS = "RUNS_ROOT", "POLICIES_ROOT", "DATASETS_ROOT"
NAMES = {POLICIES: "policies", DATASETS: "datasets"}  # of a root in the store
# Where a spec holds a path, the setting of the root that it lies below, and how many names it has below that root: datasets lie in a folder a team.
PATHS = (
    (("policy", "folder"), RUNS, 1),
    (("policy", "path"), POLICIES, 1),
    (("teacher", "folder"), RUNS, 1),
    (("teacher", "path"), POLICIES, 1),
    (("dataset", "path"), DATASETS, 2),
    (("task", "file", "path"), DATASETS, 3),
)


@dataclass(frozen=True)
class SpecPath:
    """A path in a spec: the object that holds it and under which key, below which root it lies and how deep."""

    part: dict[str, Any]
    key: str
    root: str
    depth: int

    @property
    def path(self) -> str:
        return str(self.part[self.key])

    @property
    def inside(self) -> str:
        """Of a run: what is read of its folder; empty for what is read whole."""
        checkpoint = self.part.get("checkpoint", FINAL)
        return "" if self.root != RUNS else FINAL if checkpoint == FINAL else f"checkpoints/checkpoint-{checkpoint}"

    @property
    def names(self) -> tuple[str, ...]:
        """Below the root."""
        return Path(self.path).parts[-self.depth :]

    def exists(self, place: Path) -> bool:
        return (place / self.inside).exists()

    def find(self, run: Run) -> Path | None:
        """Where this machine has it: under the spec's own path, below its root, or fetched for the run."""
        places = (Path(self.path), Path(getattr(settings, self.root)).joinpath(*self.names), self.locate_input(run))
        return next((place for place in places if self.exists(place)), None)

    def locate_input(self, run: Run) -> Path:
        return run.folder.joinpath(INPUTS, self.root.partition("_")[0].lower(), *self.names)


def list_spec_paths(spec: dict[str, Any]) -> list[SpecPath]:
    found = []
    for names, root, depth in PATHS:
        part: Any = spec
        for name in names[:-1]:
            part = part.get(name) if isinstance(part, dict) else None
        if isinstance(part, dict) and isinstance(part.get(names[-1]), str):
            found.append(SpecPath(part, names[-1], root, depth))
    return found


def localize_spec_paths(run: Run) -> dict[str, Any]:
    """The run's spec as this machine reads it. The run's own folder is where this machine has it. Any other path stays as it is where it exists here,
    which is also true of what a command line gave; otherwise it is the same file below this machine's root, or as it was fetched, where that exists.
    What is nowhere keeps the name that the launch gave it: the trainer refuses it by that name.
    """
    spec = copy.deepcopy(run.spec)
    if "output" in spec:
        spec["output"] = str(run.folder)
    for one in list_spec_paths(spec):
        place = one.find(run)
        root = Path(getattr(settings, one.root)).joinpath(*one.names)
        if place is None and not Path(one.path).exists() and root.exists():
            place = root  # a run's folder without the checkpoint: the trainer says which ones it has
        if place is not None:
            one.part[one.key] = str(place)
    return spec


def fetch_missing_inputs(run: Run, watch: Watch) -> None:
    """What the spec names and this machine has not, from the store into the run folder. Raises StoreError and OSError, after which it may be called
    again: what another machine is still uploading comes later.
    """
    if get_store() is None or (run.folder / RUN_FILE).exists():
        return
    for one in list_spec_paths(run.spec):
        if one.find(run) is None:
            fetch_input(run, one, watch)


def fetch_input(run: Run, one: SpecPath, watch: Watch) -> None:
    target = one.locate_input(run)
    if one.root == RUNS:
        source, stored = find_source(run, one)
        entry = get_cache().fetch(require_store(), name_checkpoint(stored), is_policy_file, watch)
        (target / RUN_FILE).parent.mkdir(parents=True, exist_ok=True)
        (target / RUN_FILE).write_bytes(msgspec.json.encode(source.spec))
        place_input(entry, target / one.inside)
        return
    entry = get_cache().fetch(require_store(), "/".join((NAMES[one.root], *one.names)), watch=watch)
    if one.root == DATASETS:  # a folder in the store with this one file in it
        target.parent.mkdir(parents=True, exist_ok=True)
        place_input(entry, target.with_name(f".{target.name}"))
        (target.with_name(f".{target.name}") / target.name).rename(target)
        return
    place_input(entry, target)


def find_source(run: Run, one: SpecPath) -> tuple[Run, Checkpoint]:
    """The run of the same team whose policy the spec names, and what the store has of it. Raises StoreError."""
    source = Run.objects.filter(team=run.team, pk=one.names[0]).first()
    rows = Checkpoint.objects.filter(run=source, path=one.inside).exclude(stored_at=None) if source else None
    stored = rows.order_by("-attempt").first() if rows else None
    if source is None or stored is None:
        raise StoreError(f"{name_run(one.names[0])}/{one.inside} is neither on this machine nor in the store yet")
    return source, stored


def place_input(entry: Path, target: Path) -> None:
    """All of it or nothing. Raises OSError."""
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    link_folder(entry, part)
    part.rename(target)
