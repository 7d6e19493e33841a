"""Claiming a run for a worker: within the team's quota, and with the lease written into the ledger of usage, in one transaction."""

from __future__ import annotations

from django.db import transaction

from lab.runs import live
from lab.runs.models import Run, Status
from lab.usage import ledger, quotas


def claim(run: Run, owner: str, worker: str) -> bool:
    """Whether the worker has the lease now. A run that a quota holds gets the reason and is sent again once there is room (``sweeper``)."""
    with transaction.atomic():
        quotas.lock(run.team_id)  # of two workers the second sees what the first has taken
        run.refresh_from_db(fields=["status", "reason"])
        gpus = ledger.gpus_of(worker)
        reason = quotas.held(run, gpus)
        if not reason and not run.claim(owner):
            return False
        if not reason:
            ledger.opened(run, owner, gpus)
    if reason:
        say(run, reason)
    return not reason


def say(run: Run, reason: str) -> None:
    """Writes why a queued run waits, or that it no longer waits for a quota; open pages are told what changed."""
    if run.reason == reason or Run.objects.filter(pk=run.pk, status=Status.QUEUED).update(reason=reason) == 0:
        return
    run.refresh_from_db()
    live.publish_state(run)
