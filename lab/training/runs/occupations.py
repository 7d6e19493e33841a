"""Which worker trains which run, as far as the leases say."""

from __future__ import annotations

from lab.training.runs.models import ACTIVE, Run
from lab.training.workers.departure import OCCUPATIONS


def register_occupations() -> None:
    OCCUPATIONS.register("runs", is_training)


def is_training(worker: str) -> bool:
    """Whether a run's lease names the worker."""
    return Run.across_teams.filter(status__in=ACTIVE, owner__startswith=f"{worker}/").exists()
