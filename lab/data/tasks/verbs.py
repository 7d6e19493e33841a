"""Deleting a task: it waits in the bin like a run, and goes for good after LAB_BIN_DAYS, files and all (``chores.py``)."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from lab.data.tasks.models import Task
from lab.data.tasks.usage import find_version_runs
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry

NAMED = 5  # runs that a refusal names


def get_bin_days() -> int:
    return int(settings.BIN_DAYS)


def list_binned(team: Team) -> list[Task]:
    return list(Task.objects.filter(team=team).exclude(binned_at=None).order_by("-binned_at")[:50])


def delete_task(task: Task, user: User | None) -> None:
    """Puts it into the bin. Raises Refusal while a run trains, or trained, on a version of it."""
    runs = [run for found in find_version_runs(task.versions.all()).values() for run in found]
    if runs:
        named = ", ".join(f"#{run.number}" for run in runs[:NAMED]) + (f" and {len(runs) - NAMED} more" if len(runs) > NAMED else "")
        raise Refusal(f"{task} is the task of run{'' if len(runs) == 1 else 's'} {named}.", "Put them in the bin first.")
    with transaction.atomic():
        if Task.objects.same_row(task).filter(binned_at=None).update(binned_at=Now(), binned_by=user):
            record_audit_entry("task.delete", task)


def restore_task(task: Task) -> None:
    with transaction.atomic():
        if Task.objects.same_row(task).exclude(binned_at=None).update(binned_at=None, binned_by=None):
            record_audit_entry("task.restore", task)
