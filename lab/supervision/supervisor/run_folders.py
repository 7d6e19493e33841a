"""The folder that a run goes on in. Machines that share no folder hand a run over by the store: the next one fetches the newest checkpoint that is
there, begins a spool file of its own, and what it may still have of an earlier attempt goes.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path

from django.conf import settings

from lab.lib.artifact_store import ArtifactStore, Manifest, Watch
from lab.lib.folders import remove_folder
from lab.supervision.supervisor import logs
from lab.supervision.supervisor.local_paths import localize_spec_paths
from lab.supervision.supervisor.trainer_process import KILL_SECONDS, AdoptedTrainer, is_locked, write_spec
from lab.training.edits.delivery import restore_edit_files
from lab.training.edits.models import RunFork
from lab.training.runs.models import Checkpoint, Run
from lab.training.runs.spool_files import begin_spool_here, is_spool_here, keep_spool_here, read_spool_token
from lab.training.runs.stored_checkpoints import get_store, list_resumable_checkpoints, name_checkpoint, name_run
from trainers.contract.spool import SPOOL

log = logging.getLogger(__name__)

CHECKPOINTS, NAME = "checkpoints", "checkpoint-"
COMPANIONS = ("pairs.jsonl", "judge/answers.jsonl")  # what a resumed attempt reads besides its checkpoint


class FolderTaken(Exception):
    """Somebody else has begun to train the run, or a trainer of an earlier attempt does not end."""


def name_companions(checkpoint: Checkpoint) -> str:
    return f"{name_run(checkpoint.run_id)}/companions/{checkpoint.path}/attempt-{checkpoint.attempt}"


def is_newest_here(run: Run) -> bool:
    """Whether this machine's folder is the one that the newest attempt trained in: the run's spool goes on here, or the attempt's log is there. True
    of a run that nobody has trained.

    The log alone does not tell: on a full disk an attempt has none, and the folder is the only place of what it and those before have written.
    """
    is_followed_here = bool(run.spool_token) and read_spool_token(run.folder) == run.spool_token
    return is_followed_here or run.attempt == 0 or logs.log_file(run.folder, run.attempt).exists()


def take_run_folder(run: Run, watch: Watch) -> None:
    """Makes this machine's folder the one that the run goes on in, with what an attempt needs to resume. Nothing to do in a lab without a store.

    Raises StoreError and OSError, after which it may be called again, FolderTaken, and database errors.
    """
    if not settings.STORE_URL and not run.spool_token:
        return
    if is_locked(run.folder):
        kill_stale_trainer(run)
    if not is_newest_here(run):
        remove_folder(run.folder.parent, run.folder.name)  # what an earlier attempt left here, before the run went on elsewhere
    if not (run.spool_token and is_spool_here(run)):
        begun = keep_spool_here(run) if has_whole_spool(run) else begin_spool_here(run)
        if not begun:
            raise FolderTaken("another worker goes on with the run")
    store = get_store()
    if store is not None:
        fetch_newest_checkpoint(run, list_resumable_checkpoints(run) if run.attempt else list_fork_starts(run), store, watch)
    restore_edit_files(run)


def has_whole_spool(run: Run) -> bool:
    """Of a run from before the lab had a store, or of a new one: this machine's file is the run's only one."""
    path = run.folder / SPOOL
    if run.spool_token:
        return False
    if not run.attempt:
        run.folder.mkdir(parents=True, exist_ok=True)
        return True
    return path.is_file() and path.stat().st_size >= run.ingested


def kill_stale_trainer(run: Run) -> None:
    """One that works on here although the run went on elsewhere. Raises FolderTaken."""
    log.warning("run %s: a trainer of an earlier attempt is killed", run.pk)
    AdoptedTrainer(run.folder).kill()
    until = time.monotonic() + KILL_SECONDS
    while is_locked(run.folder):
        if time.monotonic() > until:
            raise FolderTaken("a trainer of an earlier attempt does not end")
        time.sleep(0.05)


def list_local_steps(folder: Path) -> list[int]:
    names = [path.name.removeprefix(NAME) for path in (folder / CHECKPOINTS).glob(f"{NAME}*") if path.is_dir()]
    return sorted(int(name) for name in names if name.isdecimal())


def locate_local_step(folder: Path, step: int) -> Path:
    return folder / CHECKPOINTS / f"{NAME}{step}"


def hold_run_file(run: Run) -> Path:
    """The run's folder on this machine, with its ``run.json``: where the run trained elsewhere nothing else is in it."""
    write_spec(run.folder, localize_spec_paths(run))
    return run.folder


def list_fork_starts(run: Run) -> list[Checkpoint]:
    """Of a run that begins as a copy of another: the checkpoint that it begins with, if the store has that. Else every step is trained again."""
    fork = RunFork.objects.filter(run=run).exclude(from_step=0).select_related("edit__run").first()
    if fork is None or fork.edit is None:
        return []
    return list(fork.edit.run.checkpoints.filter(final=False, step=fork.from_step).exclude(stored_at=None).order_by("-attempt"))


def fetch_newest_checkpoint(run: Run, offered: list[Checkpoint], store: ArtifactStore, watch: Watch) -> None:
    """The first of those ``offered`` that the store has, unless one as new is here. Raises StoreError."""
    here = max(list_local_steps(run.folder), default=-1)
    for checkpoint in offered:
        if checkpoint.step <= here:
            return
        name = name_checkpoint(checkpoint)
        manifest = store.read_manifest(name)
        if manifest is None:
            log.warning("run %s: %s is not in the store any more", run.pk, name)
            continue
        fetch_companions(run, checkpoint, store, watch)
        store.fetch_folder(name, run.folder / checkpoint.path, manifest, watch)
        log.info("run %s: %s fetched from the store", run.pk, checkpoint.path)
        return


def fetch_companions(run: Run, checkpoint: Checkpoint, store: ArtifactStore, watch: Watch) -> None:
    """Raises StoreError."""
    name = name_companions(checkpoint)
    manifest = store.read_manifest(name)
    if manifest is None:
        return
    missing = Manifest([file for file in manifest.files if file.name in COMPANIONS and not (run.folder / file.name).exists()])
    place = run.folder / ".companions"
    shutil.rmtree(place, ignore_errors=True)
    store.fetch_folder(name, place, missing, watch)
    for file in missing.files:
        (run.folder / file.name).parent.mkdir(parents=True, exist_ok=True)
        (place / file.name).rename(run.folder / file.name)
    shutil.rmtree(place, ignore_errors=True)
