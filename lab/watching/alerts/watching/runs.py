"""Runs that finished, failed, fell silent or lost their worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from lab.lib.timeago import format_duration
from lab.training.runs.live import STALLED_SECONDS
from lab.training.runs.models import ACTIVE, Run, Status
from lab.watching.alerts.events import AlertEvent, build_run_event, is_event_for_rule
from lab.watching.alerts.kinds import FAILED, FINISHED, STALLED
from lab.watching.alerts.models import Rule
from lab.watching.alerts.notices import dispatch_event

OVERLAP = timedelta(minutes=2)  # a transaction that ended a run may commit a little after the moment it wrote
SILENCE = timedelta(seconds=STALLED_SECONDS)


def watch_runs(since: datetime, now: datetime) -> None:
    events = list(collect_run_events(since - OVERLAP, now))
    rules = {kind: list(Rule.across_teams.listening(kind)) for kind in {event.kind for event in events}}
    for event in events:
        dispatch_event(event, [rule for rule in rules[event.kind] if is_event_for_rule(rule, event)])


def collect_run_events(since: datetime, now: datetime) -> Iterator[AlertEvent]:
    runs = Run.across_teams.select_related("team").defer("spec", "special_tokens", "latest")
    for run in runs.filter(status__in=(Status.FINISHED, Status.FAILED), finished_at__gt=since, finished_at__lte=now + OVERLAP):
        yield build_run_end_event(run)
    for run in runs.filter(status__in=ACTIVE, progress_at__gt=since - SILENCE, progress_at__lte=now - SILENCE):
        subject, text = (
            f"{run} has stalled",
            f"Its trainer has reported nothing for {format_duration(SILENCE.total_seconds())}. {format_run_position(run)}",
        )
        at = (run.progress_at or now) + SILENCE
        event = build_run_event(run, STALLED, f"{run.attempt}:silent:{run.progress_at:%Y%m%d%H%M%S%f}", subject, text, at, page="run-logs")
        yield replace(event, step=run.step, mark="stalled")
    for run in runs.filter(status=Status.LOST):
        event = build_run_event(
            run, STALLED, f"{run.attempt}:lost:{run.rescues}", f"{run} lost its worker", f"{run.reason}\n{format_run_position(run)}".strip()
        )
        yield replace(event, step=run.step, mark="lost its worker")


def build_run_end_event(run: Run) -> AlertEvent:
    good = run.status == Status.FINISHED
    took = f"It took {format_duration((run.finished_at - run.started_at).total_seconds())}. " if run.finished_at and run.started_at else ""
    text = f"{took}{format_run_position(run)}" if good else f"{run.reason}\n{format_run_position(run)}".strip()
    subject = f"{run} {'finished' if good else 'failed'}"
    kind, page = (FINISHED, "run") if good else (FAILED, "run-logs")
    return build_run_event(run, kind, f"{run.attempt}:{run.status}:{run.finished_at:%Y%m%d%H%M%S}", subject, text, run.finished_at, page)


def format_run_position(run: Run) -> str:
    return f"Step {run.step} of {run.total_steps or '?'}, recipe {run.recipe}, task {run.task}."
