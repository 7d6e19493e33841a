"""Runs, workers, queues and quotas."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from lab.edges.operations.base import OperatorAdmin, make_confirmed_action, render_json_block
from lab.edges.operations.site import site
from lab.labelling.labels.models import Queue, QueueStatus
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs import live
from lab.training.runs.models import Run
from lab.training.workers.draining import drain_worker
from lab.training.workers.models import Worker, WorkerStart
from lab.watching.usage.models import Quota

FORGOTTEN = timedelta(days=1)


@make_confirmed_action("Stop and save these runs", "Each finishes its step, saves a checkpoint and can be resumed. Queued runs stop immediately.")
def stop_runs(request: HttpRequest, run: Run) -> str:
    if not run.request_stop():
        return f"it is {run.status}; nothing was changed."
    live.publish_state(run)
    return ""


@make_confirmed_action("Kill these runs", "Their trainers are killed without saving: everything after the last checkpoint is lost. Try Stop first.")
def kill_runs(request: HttpRequest, run: Run) -> str:
    if not run.is_active or not run.request_stop(kill=True):
        return f"it is {run.status}; nothing was changed."
    live.publish_state(run)
    return ""


@admin.register(Run, site=site)
class RunAdmin(OperatorAdmin):
    list_display = ("number", "name", "team", "created_by", "status", "reason", "queue", "owner", "progress_at", "created_at")
    list_filter = ("status", "queue", "trainer", "team")
    list_select_related = ("team", "created_by")
    search_fields = ("name", "created_by__email", "owner")
    ordering = ("-created_at",)
    fields = (
        *("team", "number", "name", "created_by", "created_at", "status", "reason", "queue", "parent", "cloned_from", "attempt", "rescues"),
        *("owner", "lease_until", "progress_at", "stop_requested_at", "kill_requested", "exit_code", "started_at", "finished_at"),
        *("step", "total_steps", "phase", "tokens", "rollouts", "ingested", "log_ingested", "launched"),
    )
    actions = (stop_runs, kill_runs)

    @admin.display(description="spec")
    def launched(self, run: Run) -> str:
        return render_json_block(run.spec)


@make_confirmed_action("Forget these workers", "Their rows are removed. Workers seen within a day are refused; a worker that reconnects reappears.")
def forget_workers(request: HttpRequest, worker: Worker) -> str:
    with transaction.atomic():
        if not Worker.objects.filter(pk=worker.pk, seen_at__lt=Now() - FORGOTTEN).delete()[0]:
            return "it was seen within the last day."
        record_audit_entry("admin.change", worker, did="forgot a worker")
    return ""


@make_confirmed_action("Drain these workers", "Each finishes the run it trains and takes no more, until it takes runs again or is started anew.")
def drain_workers(request: HttpRequest, worker: Worker) -> str:
    return "" if drain_worker(worker.name, takes_runs=False) else "it is drained already."


@make_confirmed_action("Let these workers take runs again", "Each takes the next run of its queues.")
def undrain_workers(request: HttpRequest, worker: Worker) -> str:
    return "" if drain_worker(worker.name, takes_runs=True) else "it takes runs already."


@admin.register(Worker, site=site)
class WorkerAdmin(OperatorAdmin):
    list_display = ("name", "alive", "host", "serves", "gpu", "cpus", "takes_runs", "draining", "started_at", "seen_at")
    search_fields = ("name", "host", "gpu")
    ordering = ("-seen_at",)
    actions = (drain_workers, undrain_workers, forget_workers)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return super().get_queryset(request).judged()  # type: ignore[no-any-return]

    @admin.display(boolean=True)
    def alive(self, worker: Any) -> bool:
        return bool(worker.is_alive)

    @admin.display(description="queues")
    def serves(self, worker: Worker) -> str:
        return ", ".join(worker.queues)


@admin.register(WorkerStart, site=site)
class WorkerStartAdmin(OperatorAdmin):
    """What the commands of LAB_START did. Kept for 30 days."""

    list_display = ("queue", "started_at", "became", "exit_code", "worker", "said")
    list_filter = ("queue",)
    search_fields = ("queue", "worker")
    ordering = ("-started_at",)
    fields = ("queue", "ran", "started_at", "ended_at", "exit_code", "expected_until", "worker", "output")

    @admin.display(description="command")
    def ran(self, start: WorkerStart) -> str:
        return render_json_block(start.command)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkerStart]:
        return super().get_queryset(request).judged()  # type: ignore[no-any-return]

    @admin.display(description="outcome")
    def became(self, start: WorkerStart) -> str:
        return start.outcome

    @admin.display(description="output")
    def said(self, start: WorkerStart) -> str:
        return start.last_line


def set_status(queue: Queue, status: QueueStatus) -> str:
    with transaction.atomic():
        if not Queue.objects.same_row(queue).exclude(status=status).update(status=status):
            return f"it is already {status}."
        record_audit_entry("queue.change", queue, status=[str(queue.status), str(status)])
    return ""


@make_confirmed_action("Pause these queues", "No new items are assigned; drafts are kept.")
def pause_queues(request: HttpRequest, queue: Queue) -> str:
    return set_status(queue, QueueStatus.PAUSED)


@make_confirmed_action("Open these queues", "Items are assigned again.")
def open_queues(request: HttpRequest, queue: Queue) -> str:
    return set_status(queue, QueueStatus.OPEN)


@admin.register(Queue, site=site)
class QueueAdmin(OperatorAdmin):
    list_display = ("name", "team", "kind", "purpose", "status", "overlap", "assigned_only", "created_by", "created_at")
    list_filter = ("status", "kind", "purpose", "team")
    list_select_related = ("team", "created_by")
    search_fields = ("name",)
    ordering = ("-created_at",)
    actions = (pause_queues, open_queues)


@admin.register(Quota, site=site)
class QuotaAdmin(OperatorAdmin):
    """A team's limits; empty is no limit. Teams see them, and operators set them, here or on the team's usage page."""

    list_display = ("team", "concurrent_runs", "gpu_hours", "storage_bytes", "warn_percent", "changed_at")
    list_select_related = ("team",)
    search_fields = ("team__name",)
    fields = ("team", "concurrent_runs", "gpu_hours", "storage_bytes", "queues", "warn_percent", "changed_at")
    editable = ("concurrent_runs", "gpu_hours", "storage_bytes", "warn_percent")
