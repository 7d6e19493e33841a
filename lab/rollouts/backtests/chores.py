"""What no single worker is responsible for: backtests whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

import logging
from datetime import timedelta

import redis
from django.db.models.functions import Now

from lab.rollouts.backtests.models import Backtest, BacktestStatus
from lab.rollouts.backtests.requests import send_backtest_task
from lab.training.workers.backlog import count_queue_backlog
from lab.training.workers.models import ANALYSIS

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=10)  # a message is looked for when a backtest has waited this long
AT_ONCE = 20


def sweep_backtests() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    Backtest.across_teams.lose()
    waiting = list(Backtest.across_teams.filter(status=BacktestStatus.QUEUED, created_at__lt=Now() - OVERDUE).order_by("created_at")[:AT_ONCE])
    if not waiting:
        return
    try:
        length = count_queue_backlog(ANALYSIS)
    except redis.RedisError as error:
        log.warning("Redis is away, %d backtests cannot be sent (%s)", len(waiting), error)
        return
    if not length:
        for backtest in waiting:
            send_backtest_task(str(backtest.pk))
