"""What no single worker is responsible for: questions whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

import logging
from datetime import timedelta

import redis
from django.db.models.functions import Now

from lab.rollouts.replay.models import Replay, ReplayStatus
from lab.rollouts.replay.questions import send_replay_task
from lab.training.workers.backlog import count_queue_backlog
from lab.training.workers.models import ANALYSIS

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=10)  # a message is looked for when a question has waited this long
AT_ONCE = 20


def sweep_replays() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    Replay.across_teams.lose()
    waiting = list(Replay.across_teams.filter(status=ReplayStatus.QUEUED, created_at__lt=Now() - OVERDUE).order_by("created_at")[:AT_ONCE])
    if not waiting:
        return
    try:
        length = count_queue_backlog(ANALYSIS)
    except redis.RedisError as error:
        log.warning("Redis is away, %d questions cannot be sent (%s)", len(waiting), error)
        return
    if not length:
        for replay in waiting:
            send_replay_task(str(replay.pk))
