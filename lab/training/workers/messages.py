"""Messages to workers about rows that wait in the database. The row counts: a message that was lost, or not sent, any sweep sends again."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import UUID

import redis
from django.conf import settings
from django.db.models import QuerySet
from django.db.models.functions import Now
from kombu.exceptions import OperationalError

from lab.celery import app
from lab.training.workers.models import ANALYSIS

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=10)  # a message is looked for when its row has waited this long
AT_ONCE = 20


def send_task_message(task: str, key: int | UUID, queue: str = ANALYSIS) -> None:
    """``key``: of the row. Called once the transaction that wrote the row is committed; one that cannot be sent now is logged and left to a sweep."""
    try:
        app.send_task(task, args=[key if isinstance(key, int) else str(key)], queue=queue)
    except OperationalError as error:
        log.warning("%s %s waits in the database, Redis cannot be told: %s", task, key, error)


def resend_overdue(task: str, waiting: QuerySet[Any], since: str = "created_at") -> None:
    """Sends the messages of the oldest ``waiting`` rows again, if none waits for a worker on the queue ``analysis``.

    ``since``: the field that says since when a row waits. Raises database errors; while Redis is away nothing is sent.
    """
    overdue = waiting.filter(**{f"{since}__lt": Now() - OVERDUE})
    keys = list(overdue.order_by(since).values_list("pk", flat=True)[:AT_ONCE])
    try:
        missing = bool(keys) and not redis.Redis.from_url(settings.REDIS_URL).llen(ANALYSIS)
    except redis.RedisError as error:
        log.warning("Redis is away, %d messages %s cannot be sent (%s)", len(keys), task, error)
        return
    for key in keys if missing else ():
        send_task_message(task, key)
