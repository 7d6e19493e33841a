"""Supervising one run: from the claim to the outcome, around a trainer in a process of its own.

1. Claim the next run of the queue.
2. Adopt the trainer that an earlier supervisor left behind, or start one.
3. Until it ends: spool and log into the database, the lease renewed, stop, kill and drain forwarded, the machine measured.
   With the database away training goes on, and everything is caught up when it is back.
4. Store the rest, judge the outcome, wake the stages that waited for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from lab.data.loop import human_reward
from lab.lib.artifact_store import StoreError, Watch
from lab.lib.log_context import LogContext, use_log_context
from lab.supervision.supervisor import logs, trainer_process
from lab.supervision.supervisor.attempt_outcome import LOCKED, AttemptEnding, is_disk_full, judge_outcome, last_event
from lab.supervision.supervisor.ingest import ingest_spool
from lab.supervision.supervisor.local_paths import fetch_missing_inputs, localize_spec_paths
from lab.supervision.supervisor.resources import ResourceSampler
from lab.supervision.supervisor.run_claims import claim_next_run
from lab.supervision.supervisor.run_folders import FolderTaken, take_run_folder
from lab.supervision.supervisor.trainer_process import AdoptedTrainer, Trainer
from lab.supervision.supervisor.transfers import run_beside
from lab.supervision.supervisor.uploads import CheckpointUploader, drop_superseded_folders
from lab.training.edits.delivery import close_run_edits, send_run_edits
from lab.training.runs import live, publisher
from lab.training.runs.launch import enqueue_run
from lab.training.runs.models import Run, Status
from lab.training.runs.spool_files import is_spool_here
from lab.training.workers.models import Worker
from lab.watching.usage import ledger
from trainers.contract import spool
from trainers.contract.events import AttemptFinished
from trainers.contract.spec import RUN_FILE

log = logging.getLogger(__name__)

QUICK, SLOW = 0.1, 0.5  # seconds between looks while data flows, and when it has not for a while
QUIET_SECONDS = 3.0  # without data before looks become slow
CONTROL_SECONDS = 0.5  # between looks at what was requested
LOG_SECONDS = 0.5  # between rows of a log, so that chatty trainers do not make a row a line
FETCH_PATIENCE_SECONDS = 900.0  # how long a run waits for its files; its lease is kept
LONGEST_WAIT_SECONDS = 15.0  # between two tries
PATIENCE_SECONDS = 3600.0  # how long a dead trainer's outcome waits for the database

Result = TypeVar("Result")


class LeaseLost(Exception):
    """The run was taken away; nothing of it may be touched any more."""


def run_supervisor(run_id: str, worker: str, argv: Sequence[str] | None = None) -> bool:
    """Trains the next run of the queue that the run is in until its end; returns whether there was one. ``argv`` replaces the trainer's command."""
    claimed = claim_next_run(run_id, worker)
    if claimed is None:
        log.info("the message of run %s finds nothing to claim", run_id)
        return False
    run, owner = claimed
    with use_log_context(LogContext(run=str(run.pk), team=str(run.team_id))):
        Supervisor(run, worker, owner, argv).work()
    return True


def is_draining(worker: str) -> bool:
    return Worker.objects.filter(name=worker, draining=True).exists()


class Supervisor:
    def __init__(self, run: Run, worker: str, owner: str, argv: Sequence[str] | None) -> None:
        self.run, self.worker, self.owner, self.argv = run, worker, owner, argv
        self.trainer: Trainer | AdoptedTrainer | None = None
        self.sampler = ResourceSampler(None)
        self.draining = self.stop_requested = False
        self.attempt = run.attempt  # whose log is shipped
        self.reached = run.ingested  # of the spool, as pages have been told
        self.killed = ""
        self.kill_at: float | None = None
        self.control_at = self.renew_at = self.log_at = 0.0
        self.moved_at = time.monotonic()
        self.away_since: float | None = None
        self.stopping_at: float | None = None
        self.uploader = CheckpointUploader(run) if settings.STORE_URL else None

    def work(self) -> None:
        log.info("run %s claimed as %s", self.run.pk, self.owner)
        live.publish_state(self.run)
        try:
            try:
                self.settle(*self.train())
            except (LeaseLost, OperationalError, InterfaceError):
                raise
            except Exception as error:
                log.exception("supervising run %s failed", self.run.pk)
                self.kill("")
                self.settle(Status.FAILED, f"the supervisor failed: {error or type(error).__name__}", None)
        except LeaseLost:
            log.warning("run %s was taken away from %s; its trainer is killed", self.run.pk, self.owner)
        finally:
            self.kill("")
            if self.uploader:
                self.uploader.end()
            publisher.flush_messages()

    def train(self) -> tuple[Status, str, int | None]:
        """Trainers one after the other until one has an outcome that counts: status, reason and exit code."""
        while True:
            self.patiently(self.catch_up)
            if known := self.known_outcome():
                return known
            if self.draining:
                return Status.STOPPED, "", None
            try:
                self.trainer = self.find_trainer()
            except (OSError, StoreError, FolderTaken) as error:
                return Status.FAILED, f"the trainer could not be started: {error}", None
            if self.trainer is None:
                return Status.STOPPED, "stopped before it started", None
            self.sampler = ResourceSampler(self.trainer.pid)
            self.watch(self.trainer)
            code = self.trainer.exit_code()
            status, reason = self.outcome(code)
            self.kill("")
            if code == LOCKED or self.should_go_on(status):
                log.info("run %s: going on with another trainer (%s)", self.run.pk, reason)
                continue
            return status, reason, code

    def should_go_on(self, status: Status) -> bool:
        """An adopted trainer that vanished, or that stopped because its former worker left, is followed by one of ours."""
        if self.trainer is None or not self.trainer.adopted or self.stop_requested or self.killed or self.draining:
            return False
        last = self.last_outcome()
        failed = last is not None and last.attempt == self.run.attempt and last.outcome == "failed"
        return status in (Status.FAILED, Status.STOPPED) and not failed

    # Before

    def catch_up(self) -> None:
        """Stores what an earlier supervisor left in the spool, and remembers where that was."""
        self.inherited = self.run.ingested
        if self.run.spec.get("human"):
            human_reward.drop_late(self.run)  # what nobody was there to drop
        while ingest_spool(self.run):
            self.control()

    def known_outcome(self) -> tuple[Status, str, int | None] | None:
        """The outcome of a trainer that ended while nobody watched: a finished run must not be trained again, a failed one not for ever."""
        if not is_spool_here(self.run):
            ended = self.patiently(self.run.attempts.filter(number=self.run.attempt, outcome="finished").exists)
            return (Status.FINISHED, "", 0) if ended else None
        if trainer_process.is_locked(self.run.folder):
            return None
        last = self.last_outcome()
        if last and last.outcome == "finished":
            return Status.FINISHED, "", 0
        if last and last.outcome == "failed" and self.run.ingested > self.inherited:
            return Status.FAILED, last.error, 1
        return None

    def last_outcome(self) -> AttemptFinished | None:
        """The last event of the spool, if it is how an attempt ended."""
        event = last_event(self.run.folder / spool.SPOOL)
        return event if isinstance(event, AttemptFinished) else None

    def find_trainer(self) -> Trainer | AdoptedTrainer | None:
        """The trainer that lives in the folder, or a new one; None when a stop came before it. Raises OSError."""
        run = self.run
        if is_spool_here(run) and trainer_process.is_locked(run.folder):
            log.info("run %s: adopting the trainer that lives in its folder", run.pk)
            trainer_process.clear_stop(run.folder)
            if self.patiently(run.attempts.filter(number=run.attempt).exists):
                self.patiently(lambda: run.running(self.owner))
            return AdoptedTrainer(run.folder)
        if (settings.STORE_URL or run.spool_token) and not self.prepare_folder():
            return None
        trainer_process.write_spec(run.folder, localize_spec_paths(run))
        trainer_process.clear_stop(run.folder)
        self.patiently(self.send_edits)  # before the trainer reads them: what was withdrawn meanwhile is not applied
        attempt = spool.last_attempt(run.folder / spool.SPOOL) + 1
        if not self.patiently(lambda: run.begin(self.owner, attempt)):
            self.control()
            return None
        self.attempt = attempt
        argv = [*self.argv, str(run.folder / RUN_FILE)] if self.argv else trainer_process.build_trainer_command(run.folder)
        trainer = Trainer(argv, logs.log_file(run.folder, attempt))
        log.info("run %s: attempt %d is process %s", run.pk, attempt, trainer.pid)
        return trainer

    def prepare_folder(self) -> bool:
        """Fetches what the run needs from the store while the lease is kept; False when a stop came first. Raises StoreError, OSError and FolderTaken
        once it has failed for long enough.
        """
        until, wait = time.monotonic() + FETCH_PATIENCE_SECONDS, SLOW
        while True:
            try:
                self.beside(lambda watch: take_run_folder(self.run, watch))
                self.beside(lambda watch: fetch_missing_inputs(self.run, watch))
                self.patiently(lambda: self.run.tell_preparation(self.owner, "starting", ""))
                return True
            except (OperationalError, InterfaceError) as error:
                self.reconnect(error)
            except (StoreError, OSError, FolderTaken) as error:
                if self.stop_requested or self.draining:
                    return False
                if time.monotonic() > until:
                    raise
                log.warning("run %s: its files are not here yet: %s", self.run.pk, error)
                words = f"waits for its files: {error}"
                self.patiently(lambda: self.run.tell_preparation(self.owner, "fetching files", words))  # noqa: B023  # called at once
                live.publish_state(self.run)
            pause = time.monotonic() + wait
            while time.monotonic() < pause and not (self.stop_requested or self.draining):
                self.look_after_lease()
                time.sleep(QUICK)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    def beside(self, act: Callable[[Watch], None]) -> None:
        """``act`` in a thread, while the lease is renewed here. A stop cancels it. Raises what it raises."""
        run_beside(act, Watch(lambda: self.stop_requested or self.draining), self.look_after_lease, QUICK)

    def look_after_lease(self) -> None:
        try:
            self.control()
        except (OperationalError, InterfaceError) as error:
            self.reconnect(error)

    # While it trains

    def watch(self, trainer: Trainer | AdoptedTrainer) -> None:
        """Returns when the trainer has ended and all it wrote is stored. Raises LeaseLost."""
        while True:
            alive = trainer.alive()  # asked first: what it wrote before it ended is then read below
            moved, reached = self.look(ended=not alive)
            if self.kill_at is not None and time.monotonic() > self.kill_at:
                self.kill(f"did not stop within {settings.STOP_GRACE_SECONDS:g} s and was killed; resume it from its last checkpoint")
            if not alive and reached and not moved:
                return
            if not moved:
                time.sleep(QUICK if time.monotonic() - self.moved_at < QUIET_SECONDS else SLOW)
            elif alive:
                time.sleep(QUICK / 2)  # a step's events come together: one batch instead of several

    def look(self, ended: bool) -> tuple[bool, bool]:
        """One round; returns whether anything was stored, and whether the database could be reached."""
        self.sampler.look()
        try:
            moved = self.store_spool()
            if ended or time.monotonic() >= self.log_at:
                self.log_at = time.monotonic() + LOG_SECONDS
                moved |= logs.ship_log_piece(self.run, self.attempt, final=ended)
            self.control()
        except (OperationalError, InterfaceError) as error:
            self.reconnect(error)
            return False, False
        self.away_since = None
        if moved:
            self.moved_at = time.monotonic()
        return moved, True

    def store_spool(self) -> bool:
        batch = ingest_spool(self.run, samples=self.sampler.summary(), reached=self.reached)
        if batch is None:
            return False
        if batch.points and batch.to > self.reached:
            self.sampler.taken()
        self.reached = max(self.reached, batch.to)
        if batch.saved and self.uploader:
            self.uploader.wake()
        if batch.started and self.run.running(self.owner):
            live.publish_state(self.run)
        return True

    def control(self) -> None:
        """Renews the lease and does what was requested meanwhile. Raises LeaseLost."""
        now = time.monotonic()
        if now < self.control_at:
            return
        self.control_at = now + CONTROL_SECONDS
        stored = Run.objects.same_row(self.run).filter(owner=self.owner).values("status", "stop_requested_at", "kill_requested").first()
        if stored is None or (now >= self.renew_at and not self.run.renew(self.owner)):
            raise LeaseLost
        if now >= self.renew_at:
            ledger.refresh_leases(self.owner)
            self.renew_at = now + settings.LEASE_SECONDS / 6
        for name, value in stored.items():
            setattr(self.run, name, value)
        self.stop_requested = stored["stop_requested_at"] is not None
        self.draining = self.draining or is_draining(self.worker)
        if self.stop_requested or self.draining:
            self.stop()
        if stored["kill_requested"]:
            self.kill("killed; resume goes on from the last checkpoint")
        self.send_edits()
        self.answer()

    def send_edits(self) -> None:
        """What people want to change goes into the run folder; the trainer reads it at its next step."""
        try:
            send_run_edits(self.run)
        except OSError:
            log.exception("run %s: its edits could not be sent", self.run.pk)

    def answer(self) -> None:
        """What people said about the trainer's questions goes into the run folder. Without it the trainer goes on with its fallback."""
        if self.run.spec.get("human"):
            try:
                human_reward.sync_reward_answers(self.run)
            except (OperationalError, InterfaceError):
                raise
            except Exception:
                log.exception("run %s: what people answered could not be sent", self.run.pk)

    def stop(self) -> None:
        """Asks the trainer to save and end, once; the grace period runs from then."""
        if self.kill_at is None and self.trainer is not None:
            trainer_process.request_stop(self.run.folder)
            self.stopping_at = time.monotonic()
            self.kill_at = time.monotonic() + settings.STOP_GRACE_SECONDS

    def kill(self, why: str) -> None:
        """Kills what is left of the trainer; ``why`` becomes the reason if it was alive."""
        if self.trainer is None:
            return
        if why and not self.killed and self.trainer.alive():
            self.killed = why
        self.trainer.kill()
        self.kill_at = None

    # After

    def outcome(self, code: int | None) -> tuple[Status, str]:
        last = self.last_outcome()
        finished = last if last and last.attempt == self.run.attempt else None
        log_file = logs.log_file(self.run.folder, self.attempt)
        full = is_disk_full(self.run.folder)
        return judge_outcome(AttemptEnding(code, finished, log_file, self.killed, self.stop_requested, self.sampler.peak_memory, full))

    def settle(self, status: Status, reason: str, code: int | None) -> None:
        """Gives the lease back with the outcome, or the run back into the queue when only its worker leaves. Raises LeaseLost."""
        run = self.run
        self.finish_uploads()
        if self.draining and not self.stop_requested and status == Status.STOPPED:
            given = self.patiently(lambda: run.hand_back(self.owner, "its worker left; it goes on from the last checkpoint with the next one"))
            followers = [run]
        else:
            given = self.end_run(status, reason, code)
            followers = self.patiently(lambda: list(run.children.filter(status=Status.QUEUED))) if status == Status.FINISHED else []
        if not given:
            raise LeaseLost
        if self.uploader:
            self.patiently(lambda: drop_superseded_folders(run))
        self.patiently(lambda: ledger.close_leases(self.owner))
        trainer_process.clear_stop(run.folder)
        if status == Status.FINISHED:
            self.patiently(lambda: close_run_edits(run))
        if run.spec.get("human"):
            self.patiently(lambda: human_reward.close_reward_queue(run))
        for follower in followers:
            enqueue_run(follower)
        log.info("run %s ended: %s %s", run.pk, run.status, run.reason)
        live.publish_state(run)

    def end_run(self, status: Status, reason: str, code: int | None) -> bool:
        """Whether the lease was ours to give back. What a crash of the database took of the spool is stored again first."""
        run = self.run
        while not self.patiently(lambda: run.end(self.owner, status, reason, code)):
            if run.owner != self.owner or not run.is_active:
                return False
            log.warning("run %s: the database lost the spool after byte %d; it is stored again", run.pk, run.ingested)
            while self.patiently(self.store_spool):
                self.look_after_lease()
        return True

    def finish_uploads(self) -> None:
        """What was saved has the time that stopping may take to reach the store."""
        if self.uploader:
            until = (self.stopping_at or time.monotonic()) + settings.STOP_GRACE_SECONDS
            self.uploader.finish(until, self.look_after_lease, lambda: self.run.kill_requested)

    # The database

    def patiently(self, act: Callable[[], Result]) -> Result:
        """What ``act`` returns, once the database answers. Raises what it raised last when it does not for an hour."""
        while True:
            try:
                result = act()
            except (OperationalError, InterfaceError) as error:
                self.reconnect(error)
                time.sleep(SLOW)
            else:
                self.away_since = None
                return result

    def reconnect(self, error: Exception) -> None:
        """Drops the connection and its pool, so that the next try is not held up by a pool that backs off."""
        if self.away_since is None:
            self.away_since = time.monotonic()
            log.warning("run %s: the database is away, training goes on (%s)", self.run.pk, str(error).strip())
        if time.monotonic() - self.away_since > PATIENCE_SECONDS and not (self.trainer and self.trainer.alive()):
            raise error
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]  # of the PostgreSQL backend
