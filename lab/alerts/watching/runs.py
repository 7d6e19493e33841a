"""Runs that finished, failed, fell silent or lost their worker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from lab.alerts.events import Event, concerns, of_run
from lab.alerts.kinds import FAILED, FINISHED, STALLED
from lab.alerts.models import Rule
from lab.alerts.notifying import tell
from lab.lib.timeago import duration
from lab.runs.live import STALLED_SECONDS
from lab.runs.models import ACTIVE, Run, Status

OVERLAP = timedelta(minutes=2)  # a transaction that ended a run may commit a little after the moment it wrote
SILENCE = timedelta(seconds=STALLED_SECONDS)


def look(since: datetime, now: datetime) -> None:
    events = list(happened(since - OVERLAP, now))
    rules = {kind: list(Rule.objects.listening(kind)) for kind in {event.kind for event in events}}
    for event in events:
        tell(event, [rule for rule in rules[event.kind] if concerns(rule, event)])


def happened(since: datetime, now: datetime) -> Iterator[Event]:
    runs = Run.objects.select_related("team").defer("spec", "special_tokens", "latest")
    for run in runs.filter(status__in=(Status.FINISHED, Status.FAILED), finished_at__gt=since, finished_at__lte=now + OVERLAP):
        yield ended(run)
    for run in runs.filter(status__in=ACTIVE, progress_at__gt=since - SILENCE, progress_at__lte=now - SILENCE):
        subject, text = f"{run} is silent", f"Its trainer has reported nothing for {duration(SILENCE.total_seconds())}. {where(run)}"
        at = (run.progress_at or now) + SILENCE
        yield of_run(run, STALLED, f"{run.attempt}:silent:{run.progress_at:%Y%m%d%H%M%S%f}", subject, text, at, page="run-logs")
    for run in runs.filter(status=Status.LOST):
        yield of_run(run, STALLED, f"{run.attempt}:lost:{run.rescues}", f"{run} lost its worker", f"{run.reason}\n{where(run)}".strip())


def ended(run: Run) -> Event:
    good = run.status == Status.FINISHED
    took = f"It took {duration((run.finished_at - run.started_at).total_seconds())}. " if run.finished_at and run.started_at else ""
    text = f"{took}{where(run)}" if good else f"{run.reason}\n{where(run)}".strip()
    subject = f"{run} {'finished' if good else 'failed'}"
    kind, page = (FINISHED, "run") if good else (FAILED, "run-logs")
    return of_run(run, kind, f"{run.attempt}:{run.status}:{run.finished_at:%Y%m%d%H%M%S}", subject, text, run.finished_at, page)


def where(run: Run) -> str:
    return f"Step {run.step} of {run.total_steps or '?'}, recipe {run.recipe}, task {run.task}."
