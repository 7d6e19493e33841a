from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from lab.training.workers.models import Worker
from lab.watching.usage.models import Lease, Quota
from tests.lab.supervisor.spools import make_run

MakeWorker = Callable[..., Worker]
MakeLease = Callable[..., Lease]


@pytest.fixture
def make_worker(db: None) -> MakeWorker:
    def make(name: str, gpu: str = "H200, 139 GiB", queues: tuple[str, ...] = ("gpu",)) -> Worker:
        return Worker.objects.create(name=name, host="there", pid=1, queues=list(queues), gpu=gpu, seen_at=timezone.now())

    return make


@pytest.fixture
def make_lease(team: Team) -> MakeLease:
    """A lease that began at ``start`` and lasted ``hours``."""

    def make(start: datetime, hours: float, gpus: int = 1, run: Run | None = None, **fields: Any) -> Lease:
        run = run or make_run(team)
        end = start + timedelta(hours=hours)
        values = {"team": team, "run": run, "number": run.number, "recipe": run.recipe, "owner": f"w/{run.pk}-{start}", "gpus": gpus}
        return Lease.objects.create(**{**values, "started_at": start, "seen_at": end, "ended_at": end, **fields})

    return make


@pytest.fixture
def quota(team: Team) -> Quota:
    return Quota.objects.create(team=team)
