"""The storage quota as datasets ask for it before they write (lab.data.datasets.storage_room).

Checkpoints are as they were last weighed; datasets and uploads are weighed now, so that files written a moment ago count.
"""

from __future__ import annotations

from lab.lib.numbers import format_byte_size
from lab.lib.refusals import Problem
from lab.teams.accounts.models import Team
from lab.watching.usage import quotas
from lab.watching.usage.models import Storage
from lab.watching.usage.storage_use import dataset_bytes


def check_storage_quota(team: Team, more: int) -> Problem | None:
    """Locks the team's limits until the transaction ends."""
    quota = quotas.lock_quota(team.pk)
    if quota is None or quota.storage_bytes is None:
        return None
    stored = Storage.objects.filter(team=team).first() or Storage()
    used = stored.total - stored.datasets + dataset_bytes(team)
    if used + more <= quota.storage_bytes:
        return None
    needs = f" and this needs {format_byte_size(more)}" if more > 1 else ""
    message = (
        f"the team's storage quota has {format_byte_size(max(0, quota.storage_bytes - used))} left of {format_byte_size(quota.storage_bytes)}{needs}"
    )
    return Problem("storage", message, "delete checkpoints you no longer need, on the Models page, or ask an admin for more")
