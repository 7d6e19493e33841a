"""Claiming a run for a worker: within the team's quota, and with the lease written into the ledger of usage, in one transaction."""

from __future__ import annotations

from django.db import transaction

from lab.training.runs import live
from lab.training.runs.models import Run, Status
from lab.watching.usage import ledger, quotas


def claim_run(run: Run, owner: str, worker: str) -> bool:
    """Whether the worker has the lease now. A run that a quota holds gets the reason and is sent again once there is room (``sweeper``)."""
    with transaction.atomic():
        quotas.lock_quota(run.team_id)  # of two workers the second sees what the first has taken
        run.refresh_from_db(fields=["status", "reason"])
        gpus = ledger.gpus_of(worker)
        reason = quotas.explain_held_run(run, gpus)
        if not reason and not run.claim(owner):
            return False
        if not reason:
            ledger.open_lease(run, owner, gpus)
    if reason:
        set_waiting_reason(run, reason)
    return not reason


def set_waiting_reason(run: Run, reason: str) -> None:
    """Writes why a queued run waits, or that it no longer waits for a quota; open pages are told what changed."""
    if run.reason == reason or Run.objects.same_row(run).filter(status=Status.QUEUED).update(reason=reason) == 0:
        return
    run.refresh_from_db()
    live.publish_state(run)
