"""The Celery task that trains a run. A message delivered twice, or late, finds the lease taken and does nothing."""

import os
import socket

from celery import shared_task

from lab.lib.task_arguments import row_uuid
from lab.supervision.supervisor.supervise import run_supervisor
from lab.training.runs.models import Run

MOST_TRIED = 50  # runs that wait longer than the one a message names; a quota may hold each of them


@shared_task(name="supervise", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def supervise_run(run_id: str) -> None:
    """Trains the run that has waited longest in the queue of the one named: there is a message for each of them, and those of later stages are
    sent when the stage before has finished, behind runs that were launched after the chain.
    """
    if known := row_uuid("supervise", run_id):
        worker = os.environ.get("LAB_WORKER") or f"{socket.gethostname()}:{os.getpid()}"
        for waiting in list_longest_waiting(known):
            if run_supervisor(waiting, worker):
                return


def list_longest_waiting(run_id: str) -> list[str]:
    """Ids of the runs to try, in turn; the named one at the end where it is not among them."""
    queue = Run.across_teams.filter(pk=run_id).values("queue")
    waiting = Run.across_teams.waiting().filter(queue__in=queue).order_by("queued_at", "number").values_list("pk", flat=True)[:MOST_TRIED]
    return list(dict.fromkeys([*map(str, waiting), run_id]))
