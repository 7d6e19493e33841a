"""The Celery task that trains a run. A message delivered twice, or late, finds the lease taken and does nothing."""

import os
import socket

from celery import shared_task

from lab.supervisor.supervise import supervise


@shared_task(name="supervise", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def supervise_run(run_id: str) -> None:
    supervise(run_id, os.environ.get("LAB_WORKER") or f"{socket.gethostname()}:{os.getpid()}")
