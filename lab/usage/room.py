"""The storage quota as datasets ask for it before they write (lab.datasets.room).

Checkpoints are as they were last weighed; datasets and uploads are weighed now, so that files written a moment ago count.
"""

from __future__ import annotations

from lab.accounts.models import Team
from lab.datasets.rules import Problem
from lab.lib.numbers import size
from lab.usage import quotas
from lab.usage.models import Storage
from lab.usage.weighing import dataset_bytes


def refusal(team: Team, more: int) -> Problem | None:
    """Locks the team's limits until the transaction ends."""
    quota = quotas.lock(team.pk)
    if quota is None or quota.storage_bytes is None:
        return None
    stored = Storage.objects.filter(team=team).first() or Storage()
    used = stored.total - stored.datasets + dataset_bytes(team)
    if used + more <= quota.storage_bytes:
        return None
    needs = f" and this needs {size(more)}" if more > 1 else ""
    message = f"the team's storage quota has {size(max(0, quota.storage_bytes - used))} left of {size(quota.storage_bytes)}{needs}"
    return Problem("storage", message, "delete checkpoints that nobody needs, on the Models page, or ask an admin for more")
