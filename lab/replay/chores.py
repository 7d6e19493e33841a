"""What no single worker is responsible for: questions whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

import logging
from datetime import timedelta

import redis
from django.utils import timezone

from lab.replay.asking import send
from lab.replay.models import Replay, ReplayStatus
from lab.workers.backlog import backlog
from lab.workers.models import ANALYSIS

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=10)  # a message is looked for when a question has waited this long
AT_ONCE = 20


def sweep() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    Replay.objects.lose()
    waiting = list(Replay.objects.filter(status=ReplayStatus.QUEUED, created_at__lt=timezone.now() - OVERDUE).order_by("created_at")[:AT_ONCE])
    if not waiting:
        return
    try:
        length = backlog(ANALYSIS)
    except redis.RedisError as error:
        log.warning("Redis is away, %d questions cannot be sent (%s)", len(waiting), error)
        return
    if not length:
        for replay in waiting:
            send(str(replay.pk))
