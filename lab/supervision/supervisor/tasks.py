"""The Celery task that trains a run. A message delivered twice, or late, finds nothing to claim and does nothing."""

import os
import socket

from celery import shared_task

from lab.lib.task_arguments import row_uuid
from lab.supervision.supervisor.supervise import run_supervisor


@shared_task(name="supervise", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def supervise_run(run_id: str) -> None:
    """Trains the next run in the queue of the one named: there is a message for each of them."""
    if known := row_uuid("supervise", run_id):
        run_supervisor(known, os.environ.get("LAB_WORKER") or f"{socket.gethostname()}:{os.getpid()}")
