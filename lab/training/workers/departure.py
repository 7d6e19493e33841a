"""When a worker leaves by itself: after its first run, or when no run has come for some time. One that a scheduler started would else hold its
machine for ever.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import DatabaseError, InterfaceError, transaction

from lab.lib.registry import Registry
from lab.training.workers.models import Worker

# Whether the worker of that name has something to do: asked of rooms that workers may not know.
OCCUPATIONS: Registry[Callable[[str], bool]] = Registry("occupation of workers")


@dataclass(frozen=True)
class DeparturePlan:
    """``after_one``: leave after the first run. ``idle_seconds``: leave when no run came for so long, since the start or the last run."""

    after_one: bool = False
    idle_seconds: float | None = None

    @property
    def stays(self) -> bool:
        return not self.after_one and self.idle_seconds is None


class DepartureWatch:
    """Ends this process as SIGTERM does, once the plan says so."""

    def __init__(self, worker: Worker, plan: DeparturePlan) -> None:
        self.worker, self.plan, self.busy_at, self.leaves = worker, plan, time.monotonic(), False

    def look(self) -> None:
        """Called at every heartbeat. Raises database errors."""
        if self.leaves:
            return
        try:
            self.leaves = self.may_leave()
        except (DatabaseError, InterfaceError):
            self.busy_at = time.monotonic()  # nobody could have given it a run
            raise
        if self.leaves:
            os.kill(os.getpid(), signal.SIGTERM)

    def may_leave(self) -> bool:
        """Whether the worker leaves now; then no claim of it succeeds any more. Claims hold the worker's row locked. Raises database errors."""
        with transaction.atomic():
            row = Worker.objects.select_for_update().filter(pk=self.worker.pk).first()
            if row is None:  # forgotten by somebody; the next heartbeat writes it again
                return False
            if row.runs_taken != self.worker.runs_taken or any(is_busy(row.name) for is_busy in OCCUPATIONS.values()):
                self.worker.runs_taken, self.busy_at = row.runs_taken, time.monotonic()
                return False
            idle = self.plan.idle_seconds is not None and time.monotonic() - self.busy_at >= self.plan.idle_seconds
            if not idle and not (self.plan.after_one and row.runs_taken):
                return False
            row.draining = True
            row.save(update_fields=["draining"])
        return True
