"""The Celery task that embeds. A message delivered twice, or late, finds it claimed and does nothing."""

from celery import shared_task

from lab.lib.task_arguments import row_id
from lab.models.embeddings.jobs import run_embedding_job


@shared_task(name="embedding", acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def embed_rollouts(job_id: int) -> None:
    if known := row_id("embedding", job_id):
        run_embedding_job(known)
