"""What shall go from the store: written down in the transaction that deletes the rows, done by a worker, so that nobody waits for the store and
nothing of it is forgotten while it is away.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db.models.functions import Now

from lab.lib.artifact_store import StoreError
from lab.lib.folders import remove_folder
from lab.training.runs.checkpoint_rows import StoreDeletion
from lab.training.runs.stored_checkpoints import require_store

log = logging.getLogger(__name__)

AT_ONCE = 50
REMEMBERED = timedelta(days=30)  # so that the workers' machines take away what they have of a deleted run
RUNS = "runs/"


def request_store_deletions(names: Iterable[str]) -> None:
    """In the caller's transaction. Nothing where the lab has no store."""
    if settings.STORE_URL:
        StoreDeletion.objects.bulk_create(StoreDeletion(name=name) for name in names)


def delete_from_store() -> None:
    """One round. Of several workers each may try; what is gone already is no error. Raises database errors."""
    if not settings.STORE_URL:
        return
    for deletion in StoreDeletion.objects.filter(done_at=None).order_by("asked_at")[:AT_ONCE]:
        try:
            require_store().delete_folder(deletion.name)
        except StoreError as error:
            log.warning("%s cannot be deleted from the store now: %s", deletion.name, error)
            return
        StoreDeletion.objects.filter(pk=deletion.pk).update(done_at=Now())
    StoreDeletion.objects.filter(done_at__lt=Now() - REMEMBERED).delete()
    remove_deleted_runs()


def remove_deleted_runs() -> None:
    """Folders on this machine of runs that were deleted for good."""
    root = Path(settings.RUNS_ROOT)
    names = StoreDeletion.objects.filter(name__startswith=RUNS).exclude(done_at=None).values_list("name", flat=True)
    for name in names:
        run_id = name.removeprefix(RUNS)
        if is_uuid(run_id) and (root / run_id).is_dir():
            remove_folder(root, run_id)


def is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
