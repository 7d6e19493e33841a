"""What a run saved goes into the store while it trains on: a thread beside the supervisor uploads, and a chore of every worker what was left behind.

Only the newest checkpoints that the run keeps, and its final policy. Of processes of one machine one uploads at a time (a lock in the run folder).
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import Count, Max, Q
from django.db.models.functions import Now

from lab.lib.artifact_store import ArtifactStore, StoreError, Watch
from lab.supervision.supervisor.run_folders import COMPANIONS, is_newest_here, list_local_steps, locate_local_step, name_companions
from lab.supervision.supervisor.trainer_process import is_locked
from lab.training.runs.checkpoint_rows import PROBLEM_LENGTH
from lab.training.runs.models import ACTIVE, Checkpoint, Run, Status
from lab.training.runs.store_deletions import is_uuid, request_store_deletions
from lab.training.runs.stored_checkpoints import find_local_folder, list_kept_checkpoints, name_checkpoint, require_store

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 2.0, 300.0  # seconds until the next try after a failure, twice as long each time
LEAST_SECONDS = 10.0  # at the end, where a stop took its whole time
WAKE_SECONDS = 0.1
END_SECONDS = 5.0
LOOK_SECONDS = 30.0  # between two looks at what was left behind on a machine
UPLOAD_PATIENCE = timedelta(hours=1)
LOCK_FILE = "store-lock"


class CheckpointUploader(threading.Thread):
    """Uploads what the run's rows name and this machine holds, newest first, until it is ended. A failure is written into the row and tried again."""

    def __init__(self, run: Run) -> None:
        super().__init__(name="uploads", daemon=True)
        self.run_id = run.pk
        self.woken, self.ended, self.idle = threading.Event(), threading.Event(), threading.Event()
        self.telling = threading.Lock()
        self.wait = FIRST_RETRY

    def wake(self) -> None:
        with self.telling:
            self.idle.clear()
            self.woken.set()
        if self.ident is None:
            self.start()

    def run(self) -> None:
        retry: float | None = None
        try:
            while not self.ended.is_set():
                self.woken.wait(retry)
                self.woken.clear()
                retry = None if self.upload() else self.back_off()
                with self.telling:
                    if retry is None and not self.woken.is_set():
                        self.idle.set()
        finally:
            connection.close()

    def back_off(self) -> float:
        wait, self.wait = self.wait, min(2 * self.wait, LAST_RETRY)
        return wait

    def upload(self) -> bool:
        """Whether nothing is left to be uploaded."""
        if self.ended.is_set():
            return True
        try:
            done = upload_run(Run.across_teams.get(pk=self.run_id), Watch(self.ended.is_set))
        except Run.DoesNotExist:
            return True
        except (DatabaseError, InterfaceError) as error:
            log.warning("run %s: what was uploaded cannot be recorded (%s)", self.run_id, str(error).strip())
            connection.close()
            return False
        if done:
            self.wait = FIRST_RETRY
        return done

    def finish(self, until: float, meanwhile: Callable[[], None], is_cancelled: Callable[[], bool]) -> None:
        """Waits until all is there, but not past ``until`` (monotonic seconds), and ends; a chore of this machine's worker goes on with the rest."""
        until = max(until, time.monotonic() + LEAST_SECONDS)
        self.wake()
        while not self.idle.wait(WAKE_SECONDS) and time.monotonic() < until and not is_cancelled():
            meanwhile()
        self.end()

    def end(self) -> None:
        """What is under way is given up; a chore goes on later."""
        self.ended.set()
        self.woken.set()
        if self.is_alive():
            self.join(END_SECONDS)  # one that waits for the store ends with its answer; nobody keeps a lease meanwhile


def upload_run(run: Run, watch: Watch) -> bool:
    """Uploads what this machine holds of a run and the store has not; whether all is there. Raises database errors."""
    done = True
    for checkpoint in list_unstored_checkpoints(run):
        try:
            store_checkpoint(run, checkpoint, require_store(), watch)
        except StoreError as error:
            if watch.is_cancelled():
                return False
            if find_local_folder(checkpoint) is None:
                continue  # the trainer has deleted it meanwhile
            log.warning("run %s: %s is not in the store yet: %s", run.pk, checkpoint.path, error)
            Checkpoint.objects.same_row(checkpoint).update(store_problem=str(error)[:PROBLEM_LENGTH])
            done = False
    return done


def list_unstored_checkpoints(run: Run) -> list[Checkpoint]:
    """Newest first. Nothing of a run whose newest attempt was on another machine: what lies here was left behind by it."""
    if not is_newest_here(run):
        return []
    kept = list_kept_checkpoints(run, list(run.checkpoints.filter(forgotten=False)))
    return [checkpoint for checkpoint in kept if checkpoint.stored_at is None and find_local_folder(checkpoint) is not None]


def store_checkpoint(run: Run, checkpoint: Checkpoint, store: ArtifactStore, watch: Watch) -> None:
    """Uploads, records it, and lets go of what the store no longer has to keep. Raises StoreError and database errors."""
    folder = find_local_folder(checkpoint)
    if folder is None:
        raise StoreError(f"{checkpoint.path} is no longer on disk")
    with hold_upload_lock(run.folder):
        if not Checkpoint.objects.same_row(checkpoint).filter(stored_at=None, forgotten=False).exists():
            return  # another process was faster, or somebody has deleted it
        if not checkpoint.final:
            store_companions(run, checkpoint, store, watch)
        store.put_folder(folder, name_checkpoint(checkpoint), watch)
        with transaction.atomic():
            Checkpoint.objects.same_row(checkpoint).update(stored_at=Now(), store_problem="")
            forget_superseded(run)
    log.info("run %s: %s is in the store", run.pk, checkpoint.path)


def store_companions(run: Run, checkpoint: Checkpoint, store: ArtifactStore, watch: Watch) -> None:
    """What resuming needs besides the checkpoint, as it is now: the trainer may be adding to it."""
    with tempfile.TemporaryDirectory(prefix="lab-store-") as place:
        files = {}
        for number, name in enumerate(COMPANIONS):
            with suppress(FileNotFoundError):
                files[name] = Path(shutil.copyfile(run.folder / name, Path(place) / str(number)))
        if files:
            store.put_files(files, name_companions(checkpoint), watch)


def forget_superseded(run: Run) -> None:
    """As on the disk of a trainer, only the newest checkpoints stay, and of attempts that saved the same step the newest."""
    rows = list(run.checkpoints.exclude(stored_at=None))
    kept = {checkpoint.pk for checkpoint in list_kept_checkpoints(run, rows)}
    gone = [checkpoint for checkpoint in rows if checkpoint.pk not in kept]
    run.checkpoints.filter(pk__in=[checkpoint.pk for checkpoint in gone]).update(stored_at=None)
    request_store_deletions(name for checkpoint in gone for name in (name_checkpoint(checkpoint), name_companions(checkpoint)))


@contextmanager
def hold_upload_lock(folder: Path) -> Iterator[None]:
    """Raises StoreError where the folder is gone."""
    try:
        with (folder / LOCK_FILE).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise StoreError(f"the run folder cannot be used: {error.strerror or error}") from error


def drop_superseded_folders(run: Run) -> None:
    """Once nobody trains in the folder: checkpoints before the newest one that the store has, and all of them when it has the final policy."""
    stored = list(run.checkpoints.exclude(stored_at=None))
    newest = max((checkpoint.step for checkpoint in stored if not checkpoint.final), default=-1)
    whole = run.status == Status.FINISHED and any(checkpoint.final for checkpoint in stored)
    for step in list_local_steps(run.folder):
        if whole or step < newest:
            shutil.rmtree(locate_local_step(run.folder, step), ignore_errors=True)


def drop_forgotten_folders(run: Run) -> None:
    """Of checkpoints that somebody deleted in the lab, what this machine still has."""
    newest = {checkpoint.path: checkpoint for checkpoint in run.checkpoints.order_by("attempt", "step")}
    for checkpoint in newest.values():
        if checkpoint.forgotten and (folder := find_local_folder(checkpoint)) is not None:
            shutil.rmtree(folder, ignore_errors=True)


class LeftBehind:
    """Runs that ended, or lost their worker, before all was uploaded: the worker of that machine goes on. ``settled``: run → newest of its
    checkpoints, and how many were deleted, when there was nothing left to do.
    """

    def __init__(self) -> None:
        self.again: dict[UUID, tuple[float, float]] = {}  # run → when to try again, and how long to wait then
        self.settled: dict[UUID, tuple[int, int]] = {}
        self.next_look = 0.0

    def upload(self) -> None:
        """One round. Raises database errors."""
        now = time.monotonic()
        if not settings.STORE_URL or now < self.next_look:
            return
        self.next_look = now + LOOK_SECONDS
        pending = Checkpoint.across_teams.filter(run__in=list_runs_here(), stored_at=None, run__outside=False).exclude(run__status__in=ACTIVE)
        known = pending.order_by().values_list("run").annotate(newest=Max("pk"), forgotten=Count("pk", filter=Q(forgotten=True)))
        for run_id, *state in known:
            at, wait = self.again.get(run_id, (0.0, FIRST_RETRY))
            if now < at or self.settled.get(run_id) == tuple(state):
                continue
            run = Run.across_teams.get(pk=run_id)
            if upload_run(run, Watch()):
                if is_locked(run.folder):
                    continue  # its trainer lives on without a supervisor, and deletes checkpoints itself
                drop_superseded_folders(run)
                drop_forgotten_folders(run)
                self.again.pop(run_id, None)
                self.settled[run_id] = (state[0], state[1])
            else:
                self.again[run_id] = (time.monotonic() + wait, min(2 * wait, LAST_RETRY))


def list_runs_here() -> list[UUID]:
    """The runs that have a folder on this machine."""
    root = Path(settings.RUNS_ROOT)
    return [UUID(path.name) for path in root.iterdir() if is_uuid(path.name)] if root.is_dir() else []


def is_uploading(worker: str) -> bool:
    """Whether what ended on this machine is still on its way into the store: a worker that a scheduler started must not leave before, because the
    disk goes with it. After an hour it may. Raises database errors.
    """
    if not settings.STORE_URL:
        return False
    ended = Run.across_teams.filter(pk__in=list_runs_here(), outside=False, finished_at__gt=Now() - UPLOAD_PATIENCE)
    return any(list_unstored_checkpoints(run) for run in ended.exclude(status__in=ACTIVE))


left_behind = LeftBehind()


def upload_left_behind() -> None:
    """One round of a worker. Raises database errors."""
    left_behind.upload()
