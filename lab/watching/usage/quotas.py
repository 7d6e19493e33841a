"""What a team has used of what it may use, and whether a run of its has to wait for that.

A limit holds runs back before they start. A run that has started is never ended by one, and neither is a run whose worker was lost: its trainer
may still be alive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count

from lab.lib.numbers import format_byte_size
from lab.teams.accounts.models import Team
from lab.training.runs.models import ACTIVE, Run, Status
from lab.training.workers.models import Worker
from lab.watching.usage import ledger
from lab.watching.usage.models import WARN_PERCENT, Quota, Storage
from lab.watching.usage.months import Month

WAITING = "Waiting: "  # how the reason of a run begins that a quota holds
HOLDING = (*ACTIVE, Status.LOST)  # counted as running


@dataclass(frozen=True)
class QuotaUse:
    """How much of one quota is used; ``limit`` None is no limit."""

    name: str
    title: str
    used: float
    limit: float | None
    warn: float  # share of the limit

    @property
    def share(self) -> float | None:
        if self.limit is None:
            return None
        return self.used / self.limit if self.limit else 1.0

    @property
    def full(self) -> bool:
        return self.share is not None and self.share >= 1

    @property
    def near(self) -> bool:
        return self.share is not None and self.share >= self.warn

    def amount(self, value: float) -> str:
        if self.name == "storage":
            return format_byte_size(value)
        return f"{value:.0f}" if self.name == "running" else f"{value:.1f}".removesuffix(".0") + " h"

    @property
    def words(self) -> str:
        """``2 of 4``; without a limit only what is used."""
        return self.amount(self.used) if self.limit is None else f"{self.amount(self.used)} of {self.amount(self.limit)}"

    @property
    def amount_used(self) -> str:
        return self.amount(self.used)

    @property
    def bar(self) -> str:
        """For a progress element from 0 to 1."""
        return f"{min(1.0, self.share or 0.0):.4f}"

    @property
    def left(self) -> str:
        """What can still be used; empty without a limit."""
        return self.amount(max(0.0, self.limit - self.used)) if self.limit is not None else ""


@dataclass(frozen=True)
class QuotaStanding:
    """``queues`` None: every queue. ``storage`` is as of the last time it was weighed."""

    team: Team
    month: Month
    running: QuotaUse
    gpu_hours: QuotaUse
    storage: QuotaUse
    compute_hours: float
    queues: tuple[str, ...] | None

    @property
    def uses(self) -> list[QuotaUse]:
        return [self.running, self.gpu_hours, self.storage]

    @property
    def limited(self) -> bool:
        return self.queues is not None or any(use.limit is not None for use in self.uses)

    @property
    def near(self) -> list[QuotaUse]:
        return [use for use in self.uses if use.near]


def compute_quota_standing(team: Team, quota: Quota | None = None) -> QuotaStanding:
    """What the team uses now, in four queries. ``quota`` when the caller has it."""
    quota = quota or Quota.objects.filter(team=team).first() or Quota(team=team)
    warn = (quota.warn_percent or WARN_PERCENT) / 100
    month = Month.now()
    gpu_hours, compute_hours = ledger.sum_month_hours(team, month)
    stored = Storage.objects.filter(team=team).first() or Storage()
    running = Run.objects.of(team).filter(status__in=HOLDING, outside=False).count()  # others train on machines of their own
    return QuotaStanding(
        team=team,
        month=month,
        running=QuotaUse("running", "Concurrent runs", running, quota.concurrent_runs, warn),
        gpu_hours=QuotaUse("gpu_hours", "GPU-hours this month", gpu_hours, quota.gpu_hours, warn),
        storage=QuotaUse("storage", "Storage", stored.total, quota.storage_bytes, warn),
        compute_hours=compute_hours,
        queues=None if quota.queues is None else tuple(quota.queues),
    )


def list_near_quotas(team: Team) -> list[QuotaUse]:
    """The quotas of which the team has used its warning share or more."""
    return compute_quota_standing(team).near


def count_free_places(teams: Iterable[int]) -> dict[int, int]:
    """Team → how many more of its runs may train at once, of those that have such a limit."""
    limits = dict(Quota.across_teams.filter(team__in=teams).exclude(concurrent_runs=None).values_list("team", "concurrent_runs"))
    running = Run.across_teams.filter(team__in=limits, status__in=HOLDING, outside=False).order_by().values_list("team").annotate(count=Count("pk"))
    used = dict(running)
    return {team: max(0, limit - used.get(team, 0)) for team, limit in limits.items()}


def lock_quota(team_id: int) -> Quota | None:
    """The team's limits, kept from other claims until the transaction ends."""
    return Quota.objects.select_for_update().filter(team=team_id).first()


def explain_quota_block(standing: QuotaStanding, queue: str, gpu: bool) -> str:
    """Why a run of the team may not start on ``queue``; empty when it may. ``gpu``: whether it would use GPU-hours."""
    if refusal := explain_queue_refusal(standing.team, standing.queues, queue):
        return f"{refusal} An admin can raise the quota on the usage page."
    running, hours, storage = standing.running, standing.gpu_hours, standing.storage
    if running.full:
        return f"team {standing.team.name} already has {running.words} concurrent runs."
    if gpu and hours.full:
        return f"the month's {hours.amount(hours.limit or 0)} on GPUs are used up; they reset on {standing.month.next.start:%-d %B}."
    if storage.full:
        return f"storage is full ({storage.words}): delete checkpoints you no longer need, or ask an admin for more."
    return ""


def explain_queue_refusal(team: Team, queues: Collection[str] | None, queue: str) -> str:
    """Why the team, which may use ``queues`` (None: all), may not use the queue; empty when it may."""
    if queues is None or queue in queues:
        return ""
    allowed = f"only {', '.join(queues)}" if queues else "no queue"
    return f"team {team.name} may not use the queue {queue} ({allowed})."


def takes_gpus(queue: str) -> bool:
    """Whether a run of the queue would go to a GPU, as far as can be told before it is claimed: not while a worker without one takes it."""
    return not Worker.objects.serving(queue).filter(gpu="").exists()


def explain_held_run(run: Run, gpus: int | None = None) -> str:
    """Why a queued run waits for a quota, or nothing. ``gpus``: of the worker that would take it, where that is known."""
    if run.status != Status.QUEUED:
        return ""
    return held_all([run], gpus).get(run.pk, "")


def held_all(runs: Iterable[Run], gpus: int | None = None) -> dict[UUID, str]:
    """The reason of each queued run that a quota holds; a few queries a team."""
    queued = [run for run in runs if run.status == Status.QUEUED]
    limits = {quota.team_id: quota for quota in Quota.objects.filter(team__in={run.team_id for run in queued}).select_related("team")}
    standings = {key: compute_quota_standing(quota.team, quota) for key, quota in limits.items()}
    on_gpu = {queue: takes_gpus(queue) if gpus is None else gpus > 0 for queue in {run.queue for run in queued if run.team_id in standings}}
    reasons = {run.pk: explain_quota_block(standings[run.team_id], run.queue, on_gpu[run.queue]) for run in queued if run.team_id in standings}
    held = {key: f"{WAITING}{reason}" for key, reason in reasons.items() if reason}
    # A run that was claimed after it was read is one of those that run by now: it does not wait for itself.
    still = set(Run.across_teams.filter(pk__in=held, status=Status.QUEUED).values_list("pk", flat=True)) if held else set()
    return {key: reason for key, reason in held.items() if key in still}
