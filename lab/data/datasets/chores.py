"""What no single worker is responsible for: versions whose worker is gone, waiting ones whose message is, and uploads nobody confirmed."""

from __future__ import annotations

import logging
from datetime import timedelta

import redis
from django.conf import settings
from django.db.models.functions import Now

from lab.data.datasets import uploads
from lab.data.datasets.freezing import send_version_task
from lab.data.datasets.models import Version, VersionState
from lab.training.workers.models import ANALYSIS

log = logging.getLogger(__name__)

OVERDUE = timedelta(seconds=10)  # a message is looked for when a version has waited this long
AT_ONCE = 20


def sweep_versions_and_uploads() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    Version.across_teams.requeue()
    uploads.forget_old()
    waiting = list(
        Version.across_teams.filter(state=VersionState.QUEUED, beat_at__lt=Now() - OVERDUE).order_by("pk").values_list("pk", flat=True)[:AT_ONCE]
    )
    if not waiting:
        return
    try:
        length = int(redis.Redis.from_url(settings.REDIS_URL).llen(ANALYSIS))  # type: ignore[arg-type]
    except redis.RedisError as error:
        log.warning("Redis is away, %d versions cannot be sent (%s)", len(waiting), error)
        return
    if not length:
        for version in waiting:
            send_version_task(version)
