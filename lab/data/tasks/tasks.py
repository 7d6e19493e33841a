"""The Celery task that fetches rows. A message delivered twice, or late, finds the fetch claimed and does nothing."""

from celery import shared_task

from lab.data.tasks.fetching import TASK, run_fetch
from lab.lib.task_arguments import row_uuid


@shared_task(name=TASK, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def fetch_rows(fetch_id: str) -> None:
    if known := row_uuid(TASK, fetch_id):
        run_fetch(known)
