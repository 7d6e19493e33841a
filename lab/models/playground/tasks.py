"""The Celery task that samples. A message delivered twice, or late, finds it claimed and does nothing."""

from celery import shared_task

from lab.lib.task_arguments import row_uuid
from lab.models.playground.sampling import run_sampling


@shared_task(name="playground", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def sample_checkpoints(sampling_id: str) -> None:
    if known := row_uuid("playground", sampling_id):
        run_sampling(known)
