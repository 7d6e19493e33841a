"""What open pages are told: the state of a run, the delta of a batch just committed, and how to catch up from the database.

Messages are wake-ups. One that is lost, because Redis was away or a queue was full, leaves a gap between cursors that a page sees and fills
from the database; so nothing here may raise, wait or slow the ingest down.
"""

from __future__ import annotations

import json
import math
import time
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Min

from lab.lib.clock import database_now
from lab.lib.snapshots import open_read_snapshot
from lab.training.runs import metrics
from lab.training.runs.models import ACTIVE, RESUMABLE, Run, Status
from lab.training.runs.publisher import publish_message

STALLED_SECONDS = 120
MAX_GAP_STEPS = 5000  # a longer gap is filled by loading the page's data again
MAX_DELTA_POINTS = 50_000
TEAM_SECONDS = 0.5  # a run tells its team at most this often how far it is

LATEST = ("reward", "entropy", "loss", "tokens_per_second", "heldout")
STOPPABLE = (Status.QUEUED, Status.LOST, Status.STARTING, Status.RUNNING)

_team_told: dict[UUID, float] = {}


def run_group(run_id: UUID | str) -> str:
    return f"run-{run_id}"


def team_group(team_id: int) -> str:
    return f"team-{team_id}"


def describe_run_state(run: Run, now: datetime | None = None) -> dict[str, Any]:
    """Where the run stands, as JSON. ``log`` is [attempt, bytes of its log in the database]: it moves without the cursor.

    ``now`` by the database's clock; it is asked for an active run where it is left out.
    """
    return {
        "id": str(run.pk),
        "number": run.number,
        "status": run.status,
        "status_label": Status(run.status).label,
        "reason": run.reason,
        "step": run.step,
        "total_steps": run.total_steps,
        "progress": min(1.0, run.step / run.total_steps) if run.total_steps else None,
        "phase": run.phase,
        "phase_done": run.phase_done,
        "phase_total": run.phase_total,
        "eta_seconds": estimate_eta_seconds(run),
        "attempt": run.attempt,
        "tokens": run.tokens,
        "rollouts": run.rollouts,
        "stalled_seconds": _compute_stalled_seconds(run, now),
        "latest": {name: run.latest.get(name) for name in LATEST},
        "started_at": _format_iso_time(run.started_at),
        "finished_at": _format_iso_time(run.finished_at),
        "log": [run.attempt, run.log_ingested],
        "edits": run.latest.get("edits", 0),  # what the trainer has reported of them: pages then ask for the marks anew
        "can": {
            "stop": run.status in STOPPABLE,
            "kill": run.status in ACTIVE and not run.outside,
            "resume": run.status in RESUMABLE and not run.outside,
        },
    }


def _format_iso_time(when: datetime | None) -> str | None:
    return when.isoformat() if when else None


def _compute_stalled_seconds(run: Run, now: datetime | None) -> int | None:
    if run.status not in ACTIVE or run.progress_at is None:
        return None
    silent = ((now or database_now()) - run.progress_at).total_seconds()
    return int(silent) if silent > STALLED_SECONDS else None


def estimate_eta_seconds(run: Run) -> int | None:
    """Seconds to go at the recent pace of steps (evaluations included); None before two steps were seen."""
    pace: float | None = run.latest.get("step_seconds")
    if run.status not in ACTIVE or not pace or not run.total_steps:
        return None
    return round(max(0, run.total_steps - run.step) * pace)


def publish_state(run: Run) -> None:
    """Tells the run's pages and the team's lists. ``run`` must be fresh."""
    message = {"type": "state", "run": describe_run_state(run)}
    publish_message(run_group(run.pk), message)
    publish_message(team_group(run.team_id), message)
    _team_told[run.pk] = time.monotonic()


def describe_run_labels(run: Run) -> dict[str, Any]:
    """What people call the run. It travels by itself and not in the state: who ingests has the run in hand for hours, with the name it had then."""
    return {"id": str(run.pk), "number": run.number, "name": run.name, "tags": list(run.tags), "archived": run.archived_at is not None}


def publish_labels(run: Run) -> None:
    """Tells the run's pages and the team's lists that people changed its name, tags or archive."""
    message = {"type": "labels", "run": describe_run_labels(run)}
    publish_message(run_group(run.pk), message)
    publish_message(team_group(run.team_id), message)


def publish_edits(run: Run) -> None:
    """Tells the run's pages that somebody asked for an edit or took one back."""
    publish_message(run_group(run.pk), {"type": "edits", "run": str(run.pk)})


def publish_delta(run: Run, delta: dict[str, Any]) -> None:
    """Sends what a committed batch added (see ``build_delta_message``) to the run's pages, and now and then the state to the team's lists."""
    publish_message(run_group(run.pk), delta)
    if time.monotonic() - _team_told.get(run.pk, -math.inf) > TEAM_SECONDS:
        publish_message(team_group(run.team_id), {"type": "state", "run": delta["state"]})
        _team_told[run.pk] = time.monotonic()


def encode_message(message: dict[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"), allow_nan=False)


def encode_json_number(value: float) -> float | str:
    """JSON has no number for nan and the infinities; they travel by name."""
    return float(value) if math.isfinite(value) else str(float(value))


def build_delta_message(run: Run, since: int, points: metrics.Points, rollouts: dict[str, int], logs: bool) -> dict[str, Any]:
    """The message for "the spool went from ``since`` to ``run.ingested``"; a reset when it is too large to send."""
    if sum(len(given) for given in points.values()) > MAX_DELTA_POINTS:
        return build_reset_message(run)
    times, tokens = dict(points.get("@time", ())), dict(points.get("@tokens", ()))
    return {
        "type": "delta",
        "run": str(run.pk),
        "from": since,
        "to": run.ingested,
        "attempt": run.attempt,
        "axes": {"step": list(times), "time": list(times.values()), "tokens": [int(tokens.get(step, 0)) for step in times]},
        "points": {name: [[step, encode_json_number(value)] for step, value in given] for name, given in points.items() if not name.startswith("@")},
        "rollouts": rollouts,
        "logs": logs,
        "state": describe_run_state(run),
    }


def build_reset_message(run: Run) -> dict[str, Any]:
    return {"type": "reset", "run": str(run.pk), "to": run.ingested, "state": describe_run_state(run)}


def catch_up(run_id: UUID | str, cursor: int) -> dict[str, Any] | None:
    """What the database has beyond ``cursor``: a delta, a reset when that is too much or history changed, None when there is nothing."""
    with open_read_snapshot():
        run = Run.across_teams.get(pk=run_id)
        if cursor == run.ingested:
            return None
        if not 0 <= cursor < run.ingested or run.attempts.filter(spool_end__gt=cursor).exists():
            return build_reset_message(run)
        if len(metrics.read_metric_series(run.pk, ["@time"], after=cursor).get("@time", ())) > MAX_GAP_STEPS:
            return build_reset_message(run)
        series_by_name = metrics.read_metric_series(run.pk, after=cursor)
        points = {name: list(zip(series.steps.tolist(), series.values.tolist(), strict=True)) for name, series in series_by_name.items()}
        return build_delta_message(run, cursor, points, _rollouts_after(run, cursor), logs=True)


def _rollouts_after(run: Run, cursor: int) -> dict[str, int]:
    """Rollouts beyond ``cursor``. They are of no earlier step than the newest metrics before it, which bounds the index scan."""
    before = run.chunks.filter(name="@time", attempt=run.attempt, last_offset__lte=cursor).aggregate(step=Max("last_step"))
    fresh = run.samples.filter(step__gte=before["step"] or 0, spool_end__gt=cursor)
    seen = fresh.aggregate(count=Count("id"), first=Min("step"), last=Max("step"))
    return rollout_span(seen["count"], seen["first"], seen["last"])


def rollout_span(count: int, first: int | None, last: int | None) -> dict[str, int]:
    return {"count": count, "first_step": first or 0, "last_step": last or 0}
