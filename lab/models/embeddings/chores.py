"""Embedding jobs whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

import logging
from datetime import timedelta

import redis
from django.db.models.functions import Now

from lab.models.embeddings.models import EmbeddingJob, JobStatus
from lab.models.embeddings.requests import send_embedding_task
from lab.training.workers.backlog import count_queue_backlog
from lab.training.workers.models import ANALYSIS

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=10)  # a message is looked for when a job has waited this long
AT_ONCE = 20


def sweep_embedding_jobs() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    EmbeddingJob.across_teams.lose()
    waiting = EmbeddingJob.across_teams.filter(status=JobStatus.QUEUED, created_at__lt=Now() - OVERDUE)
    ids = list(waiting.order_by("created_at").values_list("pk", flat=True)[:AT_ONCE])
    if not ids:
        return
    try:
        length = count_queue_backlog(ANALYSIS)
    except redis.RedisError as error:
        log.warning("Redis is away, %d embedding jobs cannot be sent (%s)", len(ids), error)
        return
    if not length:
        for pk in ids:
            send_embedding_task(pk)
