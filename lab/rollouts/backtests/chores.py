"""What no single worker is responsible for: backtests whose worker is gone, and waiting ones whose message is. Every worker does it now and then."""

from __future__ import annotations

from lab.rollouts.backtests.models import Backtest, BacktestStatus
from lab.training.workers.messages import resend_overdue


def sweep_backtests() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    Backtest.across_teams.lose()
    resend_overdue("backtest", Backtest.across_teams.filter(status=BacktestStatus.QUEUED))
