"""What the spool says of an attempt itself: its start with what it runs in, the hashes of what it trains on, its memory, and its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from lab.lib.redaction import redact_secrets
from lab.supervision.supervisor.batch import SpoolBatch
from lab.training.runs.models import Attempt, Run
from lab.training.runs.package_lists import PackageList, keep_package_list
from trainers.contract.events import AttemptStarted

MOST_PACKAGES = 5000
LONGEST = 500  # characters of a text; runs trained elsewhere write their own


def record_attempts(batch: SpoolBatch) -> None:
    run = batch.run
    Attempt.objects.bulk_create([attempt_of(run, event, end) for event, end in batch.started], ignore_conflicts=True)
    for known in batch.inputs:
        fields = {name: value for name, value in msgspec.to_builtins(known).items() if name not in ("event", "attempt", "time")}
        Attempt.objects.filter(run=run, number=known.attempt).update(inputs=fields)
    for taken in batch.memory:
        values = {name: value for name, value in msgspec.to_builtins(taken).items() if name not in ("event", "attempt", "time")}
        Attempt.objects.filter(run=run, number=taken.attempt).update(memory=redact_texts(values))
    for event in batch.finished:
        Attempt.objects.filter(run=run, number=event.attempt).update(outcome=event.outcome, error=event.error)


def attempt_of(run: Run, event: AttemptStarted, end: int) -> Attempt:
    environment, packages = split_environment(run, event)
    return Attempt(
        run=run,
        number=event.attempt,
        from_step=event.from_step,
        host=event.host[:200],
        device=event.device[:100],
        command=[redact_secrets(word) for word in event.command],
        versions=event.versions,
        environment=environment,
        packages=packages,
        started_at=to_utc_datetime(event.time),
        spool_end=end,
    )


def to_utc_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def split_environment(run: Run, event: AttemptStarted) -> tuple[dict[str, Any] | None, PackageList | None]:
    """What is stored with the attempt, and the list of packages, which many attempts share; both without secrets."""
    if event.environment is None:
        return None, None
    fields: dict[str, Any] = redact_texts(msgspec.to_builtins(event.environment))
    packages = fields.pop("packages")[:MOST_PACKAGES]
    return fields, keep_package_list(run.team_id, packages) if packages else None


def redact_texts(value: Any) -> Any:
    """Without secrets, and with no text longer than LONGEST."""
    if isinstance(value, str):
        return redact_secrets(value[:LONGEST])
    if isinstance(value, list):
        return [redact_texts(item) for item in value[:MOST_PACKAGES]]
    return {name: redact_texts(item) for name, item in value.items()} if isinstance(value, dict) else value
