"""What any worker does now and then: matches of runs that have finished, and the rest of recalls that take back many labels."""

from __future__ import annotations

import logging

from lab.data.loop import matches, recall_work
from lab.data.loop.models import Match
from lab.training.runs.models import Status

log = logging.getLogger(__name__)

AT_ONCE = 5


def run_loop_chores() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    waiting = Match.across_teams.filter(paired_at=None, child__status=Status.FINISHED).order_by("pk").values_list("pk", flat=True)
    for pk in waiting[:AT_ONCE]:
        if matches.pair_match(pk):
            log.info("match %s is paired", pk)
    recall_work.sweep_recalls()
