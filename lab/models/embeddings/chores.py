"""Embedding jobs whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

from lab.models.embeddings.models import EmbeddingJob, JobStatus
from lab.training.workers.messages import resend_overdue


def sweep_embedding_jobs() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    EmbeddingJob.across_teams.lose()
    resend_overdue("embedding", EmbeddingJob.across_teams.filter(status=JobStatus.QUEUED))
