"""What the workers page says of each worker that is alive, or was a moment ago."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from lab.workers.models import ALIVE, Worker

REMEMBERED = timedelta(hours=1)  # how long a worker that left is still listed


def recent() -> list[Worker]:
    """Workers alive now, then those that left within REMEMBERED, each newest sign of life first."""
    seen = Worker.objects.filter(seen_at__gte=timezone.now() - REMEMBERED).order_by("-seen_at")
    return sorted(seen, key=lambda worker: (not is_alive(worker), worker.name if is_alive(worker) else ""))


def is_alive(worker: Worker) -> bool:
    return worker.seen_at >= timezone.now() - ALIVE
