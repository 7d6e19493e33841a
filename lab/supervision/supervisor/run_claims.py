"""Claiming a run for a worker: the next of its queue, within the team's quota, with the lease written into the ledger of usage."""

from __future__ import annotations

import uuid
from uuid import UUID

from django.db import transaction
from django.db.models import F

from lab.training.runs import live
from lab.training.runs.models import Run, Status
from lab.training.runs.process_counts import fetch_run_sizes
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
        row = Worker.objects.select_for_update().filter(name=worker).first()  # who drains it meanwhile waits for this claim, and the next one sees it
        if row is None or is_worker_open(row):
            lock_queues([queue])
            for key in list_candidates(queue, run_id, row):
                run, owner = Run.across_teams.get(pk=key), make_owner(worker)
                try:
                    take_run(run, owner, worker)
                except NotClaimed as error:
                    held += [(run, error.reason)] if error.reason else []
                else:
                    claimed = run, owner
                    Worker.objects.filter(name=worker).update(runs_taken=F("runs_taken") + 1)
                    break
    for run, reason in held:
        set_waiting_reason(run, reason)
    return claimed


def list_candidates(queue: str, run_id: str, worker: Worker | None) -> list[UUID]:
    """The runs to try, in turn, without those that the worker has no room for; the named one at the end where so many wait before it."""
    waiting = [*list_claim_orders([queue]).get(queue, []), UUID(run_id)]
    sizes = fetch_run_sizes(waiting) if worker else {}
    fitting = [key for key in waiting if worker is None or key not in sizes or sizes[key].fits_worker(worker)]
    return list(dict.fromkeys([*fitting[:MOST_TRIED], *fitting[-1:]]))


def make_owner(worker: str) -> str:
    return f"{worker}/{uuid.uuid4().hex[:12]}"


def is_worker_open(worker: Worker) -> bool:
    """Whether the worker may take a run."""
    return worker.takes_runs and not worker.draining and not (worker.takes_one and worker.runs_taken)


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
