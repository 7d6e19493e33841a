"""Where a run goes: the project it belongs to, and the Celery queue it waits in."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from lab.teams.accounts.models import Project, Team
from lab.training.runs import hold_reasons
from lab.training.runs.models import Run
from lab.training.workers.models import ANALYSIS, Worker

QUEUE = "gpu"  # that runs go to unless somebody chooses another


@dataclass(frozen=True)
class Place:
    project: Project | None = None
    queue: str = QUEUE


def inherit_place(*runs: Run | None) -> Place:
    """Where the first of ``runs`` is, which are those a new run comes from."""
    first = next((run for run in runs if run is not None), None)
    return Place(first.project, first.queue) if first else Place()


def find_usual_queue(team: Team) -> str:
    """The queue that the team's runs go to when nobody chooses."""
    return (list_usable_queues(team) or [QUEUE])[0]


def list_usable_queues(team: Team) -> list[str]:
    """The queues that living workers train for, or that a command starts workers for, and the team may use, the usual one first."""
    served = {queue for names in Worker.objects.alive().training().values_list("queues", flat=True) for queue in names if queue != ANALYSIS}
    usable = [queue for queue in served | {QUEUE, *settings.WORKER_STARTS} if not hold_reasons.find_queue_refusal(team, queue)]
    return sorted(usable, key=lambda queue: (queue != QUEUE, queue))
