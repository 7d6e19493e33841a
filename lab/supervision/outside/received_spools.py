"""Runs that somebody's own script trains: it sends the bytes of its spool, the lab appends them to the run's and ingests them as its own.

The spool's length is the only cursor. A piece that begins there is appended, any other is left out, and the answer is always the length, from
where the script goes on: whatever was sent twice, lost or cut off on the way, the lab ends up with exactly the bytes the script wrote.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Min

from lab.lib import bounded_process
from lab.lib.clock import database_now
from lab.lib.refusals import Refusal
from lab.supervision.supervisor.attempts import to_utc_datetime
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs import live
from lab.training.runs.models import ACTIVE, Attempt, Run, Status
from lab.watching.usage import storage_room
from trainers.contract import spool

OWNER = "outside"
SILENCE_SECONDS = 600.0  # without a report for so long a run counts as lost
PIECE_BYTES = 8 << 20  # of a spool in one request
SPOOL_BYTES = 4 << 30  # of a whole run
CONFIG_BYTES = 64 << 10
TRAINERS = ("grpo", "rloo", "dpo", "kto", "orpo", "cpo", "online-dpo", "gkd", "sft", "reward", "other")
ENDS = {"finished": Status.FINISHED, "stopped": Status.STOPPED, "failed": Status.FAILED}
LIMITS = bounded_process.ProcessLimits(seconds=20, cpu_seconds=5, result=1 << 20)  # of looking at one piece
NAMESPACE = uuid.UUID("5d0a4c3e-8f55-4e0e-9d57-0c1b7f6a2b11")


class LabBusy(Exception):
    """Nothing is wrong with what was sent: the lab looks at too much at the moment."""


@dataclass(frozen=True)
class SpoolReceipt:
    """What the script is told: how many bytes of its spool the lab has, and whether somebody asked the run to stop."""

    offset: int
    stop: bool


@dataclass(frozen=True)
class RunOpening:
    """How a script introduces its run. ``config`` is whatever it wants people to see of its settings (a JSON object)."""

    key: uuid.UUID  # made by the script, kept beside its spool: opening twice gives the same run
    name: str
    trainer: str
    policy: str
    task: str
    total_steps: int
    config: dict[str, Any]


def open_run(team: Team, user: User | None, opening: RunOpening) -> tuple[Run, int]:
    """The run of that key, made when there is none, and how many bytes of its spool the lab has. Raises Refusal."""
    check_opening(opening)
    key = pk_of(team, opening.key)
    with transaction.atomic():
        Team.objects.select_for_update().get(pk=team.pk)
        run = Run.objects.filter(team=team, pk=key).first()
        if run is not None and run.binned_at is not None:
            raise Refusal(f"Run #{run.number} is in the bin.", "Restore it in the lab first, or send the run under another key.", status=409)
        if run is None:
            check_room(team, 1)
            run = Run(
                pk=key,
                team=team,
                created_by=user,
                number=Run.objects.next_number(team),
                outside=True,
                owner=OWNER,
                status=Status.LOST,
                recipe="outside",
            )
            run.started_at = database_now()
            run.name, run.trainer = opening.name.strip() or "Outside run", opening.trainer
            run.policy, run.task, run.total_steps = opening.policy or "unknown", opening.task or "unknown", opening.total_steps
            run.spec = {"outside": opening.config, "training": {"trainer": opening.trainer, "max_steps": opening.total_steps}}
            run.save(force_insert=True)
            run.folder.mkdir(parents=True, exist_ok=True)
            record_audit_entry("run.launch", run, actor=user, recipe="outside", trainer=run.trainer, policy=run.policy)
    mark_run_heard(run)
    return run, measure_spool_bytes(run)


def pk_of(team: Team, key: uuid.UUID) -> uuid.UUID:
    """Of the run with that key: two teams may choose the same one and learn nothing of each other."""
    return uuid.uuid5(NAMESPACE, f"{team.pk}/{key}")


def check_opening(opening: RunOpening) -> None:
    for field, text, limit in (("name", opening.name, 100), ("policy", opening.policy, 200), ("task", opening.task, 100)):
        if len(text) > limit or "\0" in text:
            raise Refusal(f"at most {limit} characters, none of them a null character", field=field, status=422)
    if opening.trainer not in TRAINERS:
        raise Refusal(f"one of {', '.join(TRAINERS)}", field="trainer", status=422)
    if not 0 <= opening.total_steps < 2**31:
        raise Refusal("a whole number from 0 (unknown)", field="total_steps", status=422)
    try:
        text = json.dumps(opening.config, allow_nan=False)
    except ValueError:
        raise Refusal(
            "a number in it is NaN or infinite, which JSON has no word for: leave it out or write it as a text", field="config", status=422
        ) from None
    if len(text) > CONFIG_BYTES or "\\u0000" in text:
        raise Refusal(f"at most {CONFIG_BYTES >> 10} KiB of JSON without null characters", field="config", status=422)


def receive_spool_piece(run: Run, offset: int, data: bytes) -> SpoolReceipt:
    """Appends whole lines of a spool that begin at byte ``offset``, and stores them. Raises Refusal and LabBusy.

    A piece that does not begin where the spool ends is not stored: of two senders with the same piece one appends it, and both go on after it.
    """
    if len(data) > PIECE_BYTES:
        raise Refusal(f"send at most {PIECE_BYTES >> 20} MiB at once", field="body", status=422)
    if data:
        check_piece(run.team, data)
    with transaction.atomic():
        Run.objects.select_for_update().same_row(run).get()  # one sender at a time
        end = measure_spool_bytes(run)
        if end + len(data) > SPOOL_BYTES:
            raise Refusal(f"a run may send {SPOOL_BYTES >> 30} GiB; start another one", field="body", status=422)
        if offset == end and data:
            check_room(run.team, len(data))
            with (run.folder / spool.SPOOL).open("ab") as file:
                end += file.write(data)
    mark_run_heard(run)
    store_received_spool(run)
    return SpoolReceipt(end, run.status in (Status.STOPPING, Status.STOPPED))


def check_piece(team: Team, data: bytes) -> None:
    """In a child process: whatever the lines hold, nobody else waits for them. Raises Refusal and LabBusy."""
    try:
        refusals = list(bounded_process.call_in_child("lab.supervision.outside.event_lines:list_line_refusals", f"outside/{team.pk}", LIMITS, data))
    except bounded_process.TooManyChildren as error:
        raise LabBusy(f"These lines {error.message}. {error.fix.capitalize()}.") from None
    except bounded_process.BoundedError as error:
        raise Refusal(f"{error.message}: {error.fix}, or send fewer lines at once", field="body", status=422) from None
    for field, message in refusals:
        raise Refusal(message, field=field, status=422)


def check_room(team: Team, more: int) -> None:
    """Needs a transaction. Raises Refusal where the team's storage quota has no room for ``more`` bytes of spools."""
    if problem := storage_room.check_storage_quota(team, more + sum_unweighed_bytes(team)):
        raise Refusal(f"{problem.message}: {problem.fix}. Nothing was stored; the script's own copy is complete", field=problem.field, status=422)


def sum_unweighed_bytes(team: Team) -> int:
    """Bytes of spools that arrived since the team's storage was last added up."""
    runs = Run.objects.of(team).filter(outside=True, status__in=ACTIVE).select_related("storage")
    weighed = ((run.folder / spool.SPOOL, getattr(run, "storage", None)) for run in runs)
    return sum(max(0, path.stat().st_size - (stored.other if stored else 0)) for path, stored in weighed if path.exists())


def measure_spool_bytes(run: Run) -> int:
    """Bytes of the run's spool; what a writer that died in the middle of a line left is cut off."""
    path = run.folder / spool.SPOOL
    path.parent.mkdir(parents=True, exist_ok=True)
    spool.cut_torn_tail(path)
    return path.stat().st_size if path.exists() else 0


def mark_run_heard(run: Run) -> None:
    """The script lives: its run goes on unless it has ended."""
    before = run.status
    run.heard(OWNER, SILENCE_SECONDS)
    run.refresh_from_db()
    if run.status != before:
        live.publish_state(run)


def store_received_spool(run: Run) -> None:
    """Everything that was appended, and the end of the run if its script said so. A new attempt takes an ended run up again."""
    while (batch := ingest_spool(run)) is not None:
        begun = max((event.attempt for event, _ in batch.started), default=0)
        if begun:
            date_start(run)
        if begun and run.status not in ACTIVE:
            run.reopen(OWNER, SILENCE_SECONDS)
        if batch.finished and (last := batch.finished[-1]).attempt >= begun:
            run.end(OWNER, ENDS[last.outcome], last.error[:2000], at=to_utc_datetime(last.time))
            live.publish_state(run)


def date_start(run: Run) -> None:
    """A run that is sent after it has trained began when its first attempt did, not when it was first heard of."""
    began = Attempt.objects.filter(run=run).aggregate(first=Min("started_at"))["first"]
    run.started_at = min(began, run.created_at)
    run.save(update_fields=["started_at"])
