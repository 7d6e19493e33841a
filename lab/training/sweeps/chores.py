"""Sweeps go on by themselves: every worker looks at them now and then, and the row of each lets one of them act."""

from __future__ import annotations

from lab.training.sweeps.advance import advance_sweep
from lab.training.sweeps.models import Sweep, SweepState


def advance_sweeps() -> None:
    """One round over all running sweeps. Raises database errors; the caller comes again."""
    for sweep in Sweep.across_teams.filter(state=SweepState.RUNNING).order_by("created_at"):
        advance_sweep(sweep)
