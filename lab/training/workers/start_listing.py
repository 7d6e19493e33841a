"""What the workers page says of the queues whose workers a command starts (LAB_START), to those who look after workers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from django.conf import settings

from lab.lib.redaction import redact_secrets
from lab.training.workers.models import WorkerStart

SHOWN = 5  # starts of a queue


@dataclass(frozen=True)
class QueueStarts:
    """``starts``: the newest first. ``failure``: the newest, where its command failed."""

    queue: str
    command: str
    most: int
    gpus: int
    starts: list[WorkerStart]

    @property
    def failure(self) -> WorkerStart | None:
        return self.starts[0] if self.starts and self.starts[0].state == "failed" else None


def list_queue_starts() -> list[QueueStarts]:
    """Of each queue of LAB_START."""
    listed = []
    for command in settings.WORKER_STARTS.values():
        newest = list(WorkerStart.objects.judged().filter(queue=command.queue).order_by("-started_at")[:SHOWN])
        listed.append(QueueStarts(command.queue, redact_secrets(shlex.join(command.command)), command.most, command.gpus, newest))
    return listed
