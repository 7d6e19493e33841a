"""Samplings whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from lab.models.playground.models import SamplerQuestion, Sampling, SamplingStatus
from lab.training.workers.messages import resend_overdue

FORGOTTEN = timedelta(hours=1)  # nobody waits for it any more


def sweep_samplings() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    sweep_sampler_questions(Sampling, "playground")


def sweep_sampler_questions(model: type[SamplerQuestion], task: str) -> None:
    """Ends those of one kind that nobody will answer, and sends those again whose message was lost."""
    rows: Any = model.across_teams
    rows.lose()
    queued = rows.filter(status=SamplingStatus.QUEUED)
    old = "No worker picked this up within an hour. Start one on the queue analysis and try again."
    queued.filter(created_at__lt=Now() - FORGOTTEN).update(status=SamplingStatus.FAILED, error=old, finished_at=Now())
    resend_overdue(task, queued)
