"""Samplings whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import redis
from django.db.models.functions import Now

from lab.models.playground.models import SamplerQuestion, Sampling, SamplingStatus
from lab.models.playground.requests import enqueue_sampling
from lab.training.workers.backlog import count_queue_backlog
from lab.training.workers.models import ANALYSIS

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=10)  # a message is looked for when a sampling has waited this long
FORGOTTEN = timedelta(hours=1)  # nobody waits for it any more
AT_ONCE = 20


def sweep_samplings() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    sweep_sampler_questions(Sampling, enqueue_sampling)


def sweep_sampler_questions(model: type[SamplerQuestion], enqueue: Callable[[str], None]) -> None:
    """Ends those of one kind that nobody will answer, and sends those again whose message was lost."""
    rows: Any = model.across_teams
    rows.lose()
    now = Now()
    queued = rows.filter(status=SamplingStatus.QUEUED)
    old = "No worker picked this up within an hour. Start one on the queue analysis and try again."
    queued.filter(created_at__lt=now - FORGOTTEN).update(status=SamplingStatus.FAILED, error=old, finished_at=now)
    waiting = list(queued.filter(created_at__lt=now - OVERDUE).order_by("created_at").values_list("pk", flat=True)[:AT_ONCE])
    try:
        missing = bool(waiting) and not count_queue_backlog(ANALYSIS)
    except redis.RedisError as error:
        log.warning("Redis is away, %d questions to checkpoints cannot be sent (%s)", len(waiting), error)
        return
    for pk in waiting if missing else ():
        enqueue(str(pk))
