"""What no single worker is responsible for: questions whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

from lab.rollouts.replay.models import Replay, ReplayStatus
from lab.training.workers.messages import resend_overdue


def sweep_replays() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    Replay.across_teams.lose()
    resend_overdue("replay", Replay.across_teams.filter(status=ReplayStatus.QUEUED))
