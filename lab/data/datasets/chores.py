"""What no single worker is responsible for: versions whose worker is gone, waiting ones whose message is, and uploads nobody confirmed."""

from __future__ import annotations

from lab.data.datasets import uploads
from lab.data.datasets.freezing import TASK
from lab.data.datasets.models import Version, VersionState
from lab.training.workers.messages import resend_overdue


def sweep_versions_and_uploads() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    Version.across_teams.requeue()
    uploads.forget_old()
    resend_overdue(TASK, Version.across_teams.filter(state=VersionState.QUEUED), since="beat_at")
