"""Claiming a run for a worker: the next of its queue, within the team's quota, with the lease written into the ledger of usage."""

from __future__ import annotations

import uuid
from uuid import UUID

from django.db import transaction

from lab.training.runs import live
from lab.training.runs.models import Run, Status
from lab.training.runs.queue_order import list_claim_orders, lock_queues
from lab.training.workers.models import Worker
from lab.watching.usage import ledger, quotas

MOST_TRIED = 50  # runs of a queue in turn; a quota may hold each of them


class NotClaimed(Exception):
    """The run stays where it is. ``reason``: of a quota that holds it."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def claim_next_run(run_id: str, worker: str) -> tuple[Run, str] | None:
    """The run to train and the owner of its lease. The message of a run is a ticket for its queue: whichever run is next there gets it.

    The order is read and the run taken under the queue's lock, so that nothing is claimed past a run that was just put before it. A run that
    a quota holds gets the reason and is sent again once there is room (``sweeper``).
    """
    held: list[tuple[Run, str]] = []
    claimed = None
    queue = Run.across_teams.filter(pk=run_id).values_list("queue", flat=True).first()
    if queue is None:
        return None
    with transaction.atomic():
        if is_worker_open(worker):
            lock_queues([queue])
            for key in list_candidates(queue, run_id):
                run, owner = Run.across_teams.get(pk=key), make_owner(worker)
                try:
                    take_run(run, owner, worker)
                except NotClaimed as error:
                    held += [(run, error.reason)] if error.reason else []
                else:
                    claimed = run, owner
                    break
    for run, reason in held:
        set_waiting_reason(run, reason)
    return claimed


def list_candidates(queue: str, run_id: str) -> list[UUID]:
    """The runs to try, in turn; the named one at the end where so many wait before it."""
    return list(dict.fromkeys([*list_claim_orders([queue]).get(queue, [])[:MOST_TRIED], UUID(run_id)]))


def make_owner(worker: str) -> str:
    return f"{worker}/{uuid.uuid4().hex[:12]}"


def is_worker_open(worker: str) -> bool:
    """Whether the worker may take a run. Who drains it meanwhile waits for this claim, and the next claim sees it."""
    row = Worker.objects.select_for_update().filter(name=worker).values_list("draining", "takes_runs").first()
    return row is None or row == (False, True)


def take_run(run: Run, owner: str, worker: str) -> None:
    """Raises NotClaimed; then the locks it took are free again, so that nobody waits for two teams' quotas at once."""
    with transaction.atomic():
        quotas.lock_quota(run.team_id)  # of two workers the second sees what the first has taken
        run.refresh_from_db(fields=["status", "reason"])
        gpus = ledger.gpus_of(worker)
        if reason := quotas.explain_held_run(run, gpus):
            raise NotClaimed(reason)
        if not run.claim(owner):
            raise NotClaimed
        ledger.open_lease(run, owner, gpus)


def set_waiting_reason(run: Run, reason: str) -> None:
    """Writes why a queued run waits, or that it no longer waits for a quota; open pages are told what changed."""
    if run.reason == reason or Run.objects.same_row(run).filter(status=Status.QUEUED).update(reason=reason) == 0:
        return
    run.refresh_from_db()
    live.publish_state(run)
