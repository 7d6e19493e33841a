"""Deleting for good what has been in the bin long enough: files first, then rows in batches, the run's own row last.

Every batch is a transaction of its own that holds the run's row: a worker that dies leaves the rest to the next round, and two at once take turns.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Greatest, Now

from lab.labelling.labels.models import Item
from lab.lib.clock import database_now
from lab.lib.folders import remove_folder
from lab.models.bin.hindrances import find_purge_objections
from lab.models.bin.label_items import find_run_items
from lab.rollouts.annotations.models import Comment
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import LogChunk, MetricChunk, Run
from lab.training.runs.store_deletions import request_store_deletions
from lab.training.runs.stored_checkpoints import name_run

log = logging.getLogger(__name__)
BATCH = 1000  # rows of a transaction
AT_ONCE = 20  # runs of a round
AGAIN = timedelta(days=1)  # until the next look at one that something depends on


def sweep_bin() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    due = Run.across_teams.filter(Q(purging=True) | Q(purge_at__lte=Now()), purge_at__isnull=False)
    for pk in list(due.order_by("-number").values_list("pk", flat=True)[:AT_ONCE]):  # a child before what it started from
        purge_run(pk)


def purge_run(pk: UUID) -> bool:
    """Whether the run is gone now, by this call."""
    if not begin_purge(pk):
        return False
    run = Run.across_teams.select_related("team", "binned_by").get(pk=pk)
    remove_folder(run.folder.parent, run.folder.name)
    if run.folder.exists():
        log.warning("run %s stays in the bin until its folder can be deleted", pk)
        return False
    items = sorted(find_run_items(run.team, [run]).get(run.pk, ()))
    for start in range(0, len(items), BATCH):
        with transaction.atomic():
            Item.across_teams.filter(pk__in=items[start : start + BATCH]).delete()
    while delete_batch(run, Rollout):
        pass
    for model in (MetricChunk, LogChunk):
        while delete_batch(run, model):
            pass
    return finish_purge(run)


def begin_purge(pk: UUID) -> bool:
    """From here on nobody restores it. One that something depends on is looked at again later; the page of the bin says why it is there."""
    with transaction.atomic():
        run = Run.across_teams.select_for_update(of=("self",), skip_locked=True).select_related("team").filter(pk=pk, binned_at__isnull=False).first()
        if run is None:
            return False
        if run.purging:
            return True
        if find_purge_objections(run.team, [run]):
            Run.objects.same_row(run).update(purge_at=database_now() + AGAIN)
            return False
        return Run.objects.same_row(run).filter(purge_at__lte=Now()).update(purging=True) == 1


def delete_batch(run: Run, model: type[Any]) -> int:
    """How many rows of ``model`` went, with all that hangs on them."""
    with transaction.atomic():
        ids = list(model.across_teams.filter(run=run).values_list("pk", flat=True)[:BATCH])
        if ids and model is Rollout:
            Comment.across_teams.filter(rollout__in=ids).delete()  # a comment outlives a rollout otherwise
        model.across_teams.filter(pk__in=ids).only("pk").delete()
        return len(ids)


def finish_purge(run: Run) -> bool:
    with transaction.atomic():
        if Run.objects.same_row(run).select_for_update(of=("self",)).first() is None:
            return False  # another worker was faster
        Team.objects.filter(pk=run.team_id).update(newest_deleted_run=Greatest("newest_deleted_run", run.number))
        record_audit_entry(
            "run.delete", run, rollouts=run.rollouts, binned_by=str(run.binned_by or ""), binned_at=f"{run.binned_at:%Y-%m-%d %H:%M} UTC"
        )
        request_store_deletions([name_run(run.pk)])
        run.delete()
    return True
