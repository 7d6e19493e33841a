"""Fetches whose worker or message is gone, and tasks whose time in the bin is over. Every worker looks now and then."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from lab.data.datasets.uploads import KEPT_SECONDS
from lab.data.tasks.fetching import TASK
from lab.data.tasks.models import Fetch, FetchState, Task, TaskVersion, find_task_folder
from lab.data.tasks.usage import is_used
from lab.data.tasks.verbs import get_bin_days
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.store_deletions import request_store_deletions
from lab.training.workers.messages import resend_overdue

KEPT = timedelta(seconds=KEPT_SECONDS)
AT_ONCE = 20  # tasks deleted in a round


def sweep_tasks() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    Fetch.across_teams.requeue()
    Fetch.across_teams.filter(~Q(state=FetchState.FETCHING), created_at__lt=Now() - KEPT).delete()
    purge_due_tasks()
    resend_overdue(TASK, Fetch.across_teams.filter(state=FetchState.QUEUED))


def purge_due_tasks() -> int:
    """Deletes for good what has been in the bin long enough; what a run names stays. How many."""
    due = Task.across_teams.filter(binned_at__lt=Now() - timedelta(days=get_bin_days()))
    return sum(purge_task(pk) for pk in list(due.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]))


def purge_task(pk: int) -> bool:
    with transaction.atomic():
        task = Task.across_teams.select_for_update().filter(pk=pk).exclude(binned_at=None).select_related("team").first()
        if task is None or is_used(task):
            return False
        versions = list(task.versions.all())
        record_audit_entry("task.purge", task, team=task.team, versions=len(versions))
        folder = find_task_folder(task.team_id)
        paths = [folder / version.file for version in versions]
        own = {str(version.source["file"]) for version in versions if version.source.get("file")}
        others = TaskVersion.across_teams.filter(task__team=task.team_id).exclude(task=task)
        kept = {str(name) for name in others.values_list("source__file", flat=True) if name}
        paths += [folder / name for name in own - kept]
        task.delete()
        request_store_deletions(f"datasets/{path.relative_to(settings.DATASETS_ROOT).as_posix()}" for path in paths)
    delete_files(paths)
    return True


def delete_files(paths: list[Path]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            path.unlink()
