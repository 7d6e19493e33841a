"""What any worker does now and then: matches of runs that have finished, and the rest of recalls that take back many labels."""

from __future__ import annotations

import logging

from lab.loop import matches, taking_back
from lab.loop.models import Match
from lab.runs.models import Status

log = logging.getLogger(__name__)

AT_ONCE = 5


def sweep() -> None:
    """One round. Raises database errors; the caller sweeps again later."""
    waiting = Match.objects.filter(paired_at=None, child__status=Status.FINISHED).order_by("pk").values_list("pk", flat=True)
    for pk in waiting[:AT_ONCE]:
        if matches.pair(pk):
            log.info("match %s is paired", pk)
    taking_back.sweep()
