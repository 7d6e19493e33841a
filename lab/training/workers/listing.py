"""What the workers page says of each worker that is alive, or was a moment ago."""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now

from lab.training.workers.models import Worker

REMEMBERED = timedelta(hours=1)  # how long a worker that left is still listed


def list_recent_workers() -> list[Worker]:
    """Workers alive now, then those that left within REMEMBERED, each newest heartbeat first."""
    seen = Worker.objects.judged().filter(seen_at__gte=Now() - REMEMBERED).order_by("-seen_at")
    return sorted(seen, key=lambda worker: (not worker.is_alive, worker.name if worker.is_alive else ""))
