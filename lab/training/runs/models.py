"""Runs, their lease and their metrics. Only the verbs of Run write ``status``, each by one conditional UPDATE."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.db.models import F, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce, Greatest, Least, Now

from lab.teams.accounts.models import Project, Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.checkpoint_rows import Checkpoint as Checkpoint
from lab.training.runs.package_lists import PackageList
from lab.training.runs.resumption import find_resume_objection


class Status(models.TextChoices):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"


class Priority(models.IntegerChoices):
    HIGH = 1
    NORMAL = 0
    LOW = -1


WAITING = (Status.QUEUED, Status.LOST)  # for a worker, or for the run they start from
ACTIVE = (Status.STARTING, Status.RUNNING, Status.STOPPING)  # somebody holds the lease
OPEN = (*WAITING, *ACTIVE)  # will go on by itself
RESUMABLE = (Status.STOPPED, Status.FAILED, Status.LOST)
NAME_LENGTH, TAG_LENGTH = 100, 30
HEAVY = ("spec", "special_tokens", "notes")  # columns that no list of runs shows
HEAVY_WITH_PARENT = (*HEAVY, *(f"parent__{name}" for name in HEAVY))
MAX_RESCUES = 5  # how often a lost run is taken up again without a person


class RunQuerySet(TeamQuerySet["Run"]):
    def next_number(self, team: Team) -> int:
        """One more than the team's newest. The caller's transaction holds the team's row locked, so that nobody else gets it."""
        newest = self.filter(team=OuterRef("pk")).order_by("-number").values("number")[:1]
        return int(Team.objects.values_list(Greatest(Coalesce(Subquery(newest), 0), "newest_deleted_run"), flat=True).get(pk=team.pk)) + 1

    def in_bin(self, team: Team) -> RunQuerySet:
        return self.filter(team=team).exclude(binned_at=None)

    def waiting(self) -> RunQuerySet:
        """Runs a worker may claim now: queued or lost, not waiting for an unfinished parent, and the lab's own to train."""
        return self.filter(status__in=WAITING, outside=False).filter(Q(parent=None) | Q(parent__status=Status.FINISHED))

    def listed(self) -> RunQuerySet:
        """Runs that are offered and listed unless somebody asks for the archive."""
        return self.filter(archived_at=None, binned_at=None)

    def expired(self) -> RunQuerySet:
        """Runs whose owner has sent no heartbeat for the length of a lease."""
        return self.filter(status__in=ACTIVE, lease_until__lt=Now())


class Run(TeamOwned):
    """One training run: an immutable spec, where it stands, and who trains it (the lease)."""

    binned_path = "binned_at"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="runs")
    project = models.ForeignKey(Project, models.SET_NULL, null=True, related_name="runs")
    number = models.PositiveIntegerField()  # counts up within the team; what people say aloud
    name = models.CharField(max_length=NAME_LENGTH)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="runs")
    created_at = models.DateTimeField(auto_now_add=True)

    # Name, notes, tags and archive are people's, changed by ``verbs`` only; a trainer and its ingest never write them.
    notes = models.TextField(blank=True, default="", db_default="")
    tags = ArrayField(models.CharField(max_length=TAG_LENGTH), default=list, db_default=[])
    archived_at = models.DateTimeField(null=True)  # out of the lists, at its address still

    # The bin (lab.models.bin): neither listed nor at its address until it is restored, deleted for good when ``purge_at`` has come.
    binned_at = models.DateTimeField(null=True)
    binned_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    purge_at = models.DateTimeField(null=True)
    purging = models.BooleanField(default=False, db_default=False)  # its rows and files are going: nobody gets it back

    spec = models.JSONField()  # as launched, never changed
    recipe = models.CharField(max_length=100)
    trainer = models.CharField(max_length=20)
    task = models.CharField(max_length=100)
    policy = models.CharField(max_length=200)  # what the spec's policy is called in lists
    queue = models.CharField(max_length=50, default="gpu")
    priority = models.SmallIntegerField(choices=Priority.choices, default=Priority.NORMAL, db_default=Priority.NORMAL)
    queue_place = models.PositiveIntegerField(null=True)  # among the team's of its queue and priority; null: behind those that people put in order
    parent = models.ForeignKey("self", models.PROTECT, null=True, related_name="children")  # starts after it, from its policy
    outside = models.BooleanField(default=False)  # trained by somebody's own script, which sends its events (lab.supervision.outside)
    cloned_from = models.ForeignKey("self", models.SET_NULL, null=True, related_name="clones")

    status = models.CharField(max_length=10, choices=Status.choices, default=Status.QUEUED)
    reason = models.TextField(blank=True)  # why it waits, failed or was lost; one readable line
    attempt = models.PositiveIntegerField(default=0)
    rescues = models.PositiveIntegerField(default=0)
    owner = models.CharField(max_length=200, blank=True)  # worker name and claim token
    lease_until = models.DateTimeField(null=True)
    progress_at = models.DateTimeField(null=True)  # when the trainer last reported anything
    stop_requested_at = models.DateTimeField(null=True)
    kill_requested = models.BooleanField(default=False)
    exit_code = models.IntegerField(null=True)
    queued_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    step = models.PositiveIntegerField(default=0)
    total_steps = models.PositiveIntegerField(default=0)
    phase = models.CharField(max_length=50, blank=True)
    phase_done = models.PositiveIntegerField(default=0)
    phase_total = models.PositiveIntegerField(default=0)
    tokens = models.BigIntegerField(default=0)
    rollouts = models.PositiveIntegerField(default=0)
    latest = models.JSONField(default=dict)  # newest value of the metrics lists show
    special_tokens = models.JSONField(default=dict)  # id -> text
    ingested = models.BigIntegerField(default=0)  # bytes of the spool that are in the database
    spool_begin = models.BigIntegerField(default=0, db_default=0)  # what ``ingested`` is at the first byte of the present spool file
    spool_token = models.CharField(max_length=32, blank=True, default="", db_default="")  # which file that is (lab.training.runs.spool_files)
    log_ingested = models.BigIntegerField(default=0)  # bytes of the current attempt's log that are in the database
    last_rollout = models.BigIntegerField(default=0)  # id of the newest stored rollout
    searchable_to = models.BigIntegerField(default=0)  # id of the newest rollout whose words can be searched

    objects = TeamManager.from_queryset(RunQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(RunQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "number"], name="run_number_in_team")]
        indexes = [
            models.Index(fields=["team", "-created_at"], name="run_newest"),
            models.Index(fields=["status", "lease_until"], name="run_lease"),
            models.Index(fields=["status", "finished_at"], name="run_ended"),  # alerts look every few seconds for what has just ended
            models.Index(fields=["purge_at"], condition=Q(purge_at__isnull=False), name="run_to_purge"),
        ]

    def __str__(self) -> str:
        return f"#{self.number} {self.name}"

    @property
    def folder(self) -> Path:
        return Path(settings.RUNS_ROOT) / str(self.id)

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    # Verbs: each returns whether it changed the row, so that of two callers exactly one acts.

    def _become(self, status: Status, when: Q, **fields: Any) -> bool:
        changed = Run.objects.same_row(self).filter(when).update(status=status, **fields) == 1
        team = self._state.fields_cache.get("team")
        self.refresh_from_db()
        if team is not None and team.pk == self.team_id:
            self.team = team  # as it was read: the audit log only wants its key
        return changed

    def claim(self, owner: str) -> bool:
        """Takes the lease, if the run waits for a worker and nobody else has taken it. The trainer's start counts the attempt (``begin``)."""
        ready = Run.objects.waiting().same_row(self).values("pk")
        return self._become(
            Status.STARTING,
            Q(pk__in=ready, status__in=WAITING),
            owner=owner,
            lease_until=Now() + timedelta(seconds=settings.LEASE_SECONDS),
            progress_at=Now(),
            exit_code=None,
            reason="",
            phase="starting",
            phase_done=0,
            phase_total=0,
            started_at=Coalesce("started_at", Now()),
            finished_at=None,
        )

    def renew(self, owner: str) -> bool:
        """Extends the lease; False means it was taken away and the caller must stop touching the run."""
        until = Now() + timedelta(seconds=settings.LEASE_SECONDS)
        return Run.objects.same_row(self).filter(owner=owner, status__in=ACTIVE).update(lease_until=until) == 1

    def tell_preparation(self, owner: str, phase: str, reason: str) -> bool:
        """What is done before a trainer starts, and what that waits for."""
        changed = Run.objects.same_row(self).filter(owner=owner, status__in=ACTIVE).update(phase=phase, reason=reason) == 1
        self.phase, self.reason = (phase, reason) if changed else (self.phase, self.reason)
        return changed

    def begin(self, owner: str, attempt: int) -> bool:
        """A trainer is about to start as ``attempt``, whose log is empty unless a trainer of that number ended before it reported anything."""
        log = models.Case(models.When(attempt=attempt, then="log_ingested"), default=0)
        mine = Q(owner=owner, status__in=(Status.STARTING, Status.RUNNING))
        return self._become(Status.STARTING, mine, attempt=attempt, log_ingested=log)

    def begin_spool(self, begin: int, token: str) -> bool:
        """The spool goes on in another file, whose first byte counts as ``begin``; only the lines after ``ingested`` are read from it."""
        mine = Run.objects.same_row(self).filter(owner=self.owner, ingested=self.ingested, spool_token=self.spool_token)
        changed = mine.update(spool_begin=begin, spool_token=token) == 1
        self.refresh_from_db()
        return changed

    def heard(self, owner: str, seconds: float) -> bool:
        """A script outside reported: it has ``seconds`` until the next report, and a run that was given up goes on."""
        now = Now()
        lost = models.Case(models.When(status=Status.LOST, then=models.Value(Status.RUNNING)), default="status")
        fields = {"status": lost, "lease_until": now + timedelta(seconds=seconds), "progress_at": now}
        heard = Q(status__in=(Status.LOST, *ACTIVE), outside=True, owner=owner)
        return Run.objects.same_row(self).filter(heard).update(**fields) == 1

    def reopen(self, owner: str, seconds: float) -> bool:
        """The script of an outside run that had ended was started again, from its last checkpoint."""
        ended = Q(status__in=(Status.STOPPED, Status.FAILED, Status.FINISHED), outside=True, binned_at=None)
        until = Now() + timedelta(seconds=seconds)
        # What trains stands in the list, so an archived run comes back.
        return self._become(Status.RUNNING, ended, owner=owner, lease_until=until, reason="", finished_at=None, archived_at=None)

    def running(self, owner: str) -> bool:
        return self._become(Status.RUNNING, Q(owner=owner, status=Status.STARTING))

    def request_stop(self, kill: bool = False) -> bool:
        """Asks for stop-and-save (or a kill). A run nobody trains yet is stopped at once. Recorded in the audit log."""
        with transaction.atomic():
            before = self.status
            changed = self._request_stop(kill)
            if changed:
                record_audit_entry("run.kill" if kill and self.kill_requested else "run.stop", self, was=before)
        return changed

    def _request_stop(self, kill: bool) -> bool:
        now = Now()
        if self._become(
            Status.STOPPED,
            Q(status__in=WAITING),
            stop_requested_at=now,
            finished_at=now,
            reason="stopped before it started" if not self.attempt else "stopped while waiting for a worker",
        ):
            return True
        if kill:
            return self._become(Status.STOPPING, Q(status__in=ACTIVE), stop_requested_at=now, kill_requested=True)
        return self._become(Status.STOPPING, Q(status__in=(Status.STARTING, Status.RUNNING)), stop_requested_at=now)

    def end(self, owner: str, status: Status, reason: str = "", exit_code: int | None = None, at: datetime | None = None) -> bool:
        """Gives the lease back with the outcome of the attempt, which ended at ``at``: now where that is not told or lies ahead.

        Not while the database has less of the spool than ``ingested`` says here. Batches do not wait for its disk, so a crash may have taken the
        last of them; they are stored again first. This commit does wait, and with it all that came before.
        """
        return self._become(
            status,
            Q(owner=owner, status__in=ACTIVE, ingested__gte=self.ingested),
            owner="",
            lease_until=None,
            reason=reason,
            exit_code=exit_code,
            stop_requested_at=None,
            kill_requested=False,
            finished_at=Least(models.Value(at), Now()) if at else Now(),
            phase="",
        )

    def hand_back(self, owner: str, reason: str) -> bool:
        """Back into the queue, to be resumed by whichever worker claims it next (its worker is leaving)."""
        return self._become(Status.QUEUED, Q(owner=owner, status__in=ACTIVE), owner="", lease_until=None, reason=reason, queued_at=Now(), phase="")

    def lose(self) -> bool:
        """Takes an expired lease away. A run lost too often, or asked to stop, does not wait for another worker."""
        expired = Q(status__in=ACTIVE, lease_until__lt=Now())
        gone = {"owner": "", "lease_until": None, "phase": ""}
        if self.outside:
            reason = "its script has stopped reporting; the run continues when it reports again"
            return self._become(Status.LOST, expired, reason=reason, owner=self.owner, lease_until=None)
        if self.stop_requested_at:
            return self._become(Status.STOPPED, expired, reason="its worker was lost while stopping", finished_at=Now(), **gone)
        if self.rescues >= MAX_RESCUES:
            reason = f"its worker was lost {self.rescues + 1} times; resume it once the cause is fixed"
            return self._become(Status.FAILED, expired, reason=reason, finished_at=Now(), **gone)
        return self._become(
            Status.LOST, expired, rescues=F("rescues") + 1, reason=f"lost its worker {self.owner.split('/')[0]}; waiting for another", **gone
        )

    def resume(self) -> bool:
        """Queues another attempt from the last checkpoint, unless somebody objects (lab.training.runs.resumption). Recorded in the audit log."""
        if find_resume_objection(self):
            return False
        with transaction.atomic():
            before = self.status
            changed = self._become(
                Status.QUEUED,
                Q(status__in=RESUMABLE, outside=False, archived_at=None, binned_at=None),
                reason="",
                rescues=0,
                queued_at=Now(),
                queue_place=None,
                finished_at=None,
                stop_requested_at=None,
                kill_requested=False,
            )
            if changed:
                record_audit_entry("run.resume", self, was=before, attempt=self.attempt)
        return changed


class MetricChunk(TeamOwned):
    """Points of one metric of one attempt: float64 ``values`` at int32 ``steps``, little-endian, with their range (see ``metrics``).

    ``offsets`` (int64) says with which piece of the spool each point came.
    """

    team_path = "run__team"

    run = models.ForeignKey(Run, models.CASCADE, related_name="chunks")
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=200)
    chunk = models.PositiveIntegerField()
    count = models.PositiveIntegerField()
    first_step = models.PositiveIntegerField()
    last_step = models.PositiveIntegerField()
    lo = models.FloatField(null=True)  # over the finite values
    hi = models.FloatField(null=True)
    lo_step = models.PositiveIntegerField(null=True)  # where the smallest value is; null in chunks of older versions
    hi_step = models.PositiveIntegerField(null=True)
    steps = models.BinaryField()
    values = models.BinaryField()
    offsets = models.BinaryField()
    last_offset = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name", "attempt", "chunk"], name="metric_chunk")]

    def __str__(self) -> str:
        return f"{self.name}, steps {self.first_step} to {self.last_step}"


class Attempt(TeamOwned):
    """What an attempt reported when it started; ``environment`` and ``inputs`` (see ``environment``) are null where it reported none. Steps after
    ``from_step`` of earlier attempts are superseded by this one.
    """

    team_path = "run__team"

    run = models.ForeignKey(Run, models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    from_step = models.PositiveIntegerField()
    host = models.CharField(max_length=200)
    device = models.CharField(max_length=100)
    command = models.JSONField(default=list)
    versions = models.JSONField(default=dict)
    environment = models.JSONField(null=True)
    inputs = models.JSONField(null=True)
    memory = models.JSONField(null=True)  # parts of the estimate, peak, of what, and the GPU's (trainers.contract.events.Memory)
    packages = models.ForeignKey(PackageList, models.SET_NULL, null=True, related_name="attempts")
    started_at = models.DateTimeField()
    outcome = models.CharField(max_length=20, blank=True)
    error = models.TextField(blank=True)
    spool_end = models.BigIntegerField(default=0)  # the spool offset after the event that began it

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="attempt_number")]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"attempt {self.number}"


class LogChunk(TeamOwned):
    """A piece of an attempt's standard output and error, in order of ``offset`` (bytes into the attempt's log).

    A ``notice`` is a warning the trainer reported as an event; it stands where the log was when it came.
    """

    team_path = "run__team"

    run = models.ForeignKey(Run, models.CASCADE, related_name="log_chunks")
    attempt = models.PositiveIntegerField()
    offset = models.BigIntegerField()
    text = models.TextField()
    notice = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "offset", "notice"], name="log_once")]
        ordering = ["attempt", "offset", "id"]

    def __str__(self) -> str:
        return f"log of attempt {self.attempt} from byte {self.offset}"
