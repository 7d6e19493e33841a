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
from django.utils import timezone

from lab.accounts.models import Team, User
from lab.audit.recording import record
from lab.runs import live
from lab.runs.models import ACTIVE, Run, Status
from lab.supervisor.ingest import ingest
from trainers import spool
from trainers.events import AttemptFinished, AttemptStarted, Metrics, Phase, Rollout, Warned

OWNER = "outside"
SILENCE_SECONDS = 600.0  # without a report for so long a run counts as lost
PIECE_BYTES = 8 << 20  # of a spool in one request
SPOOL_BYTES = 4 << 30  # of a whole run
CONFIG_BYTES = 64 << 10
ALLOWED = (AttemptStarted, Phase, Metrics, Rollout, Warned, AttemptFinished)  # nothing that names a file or asks people
TRAINERS = ("grpo", "dpo", "kto", "sft", "reward", "other")
ENDS = {"finished": Status.FINISHED, "stopped": Status.STOPPED, "failed": Status.FAILED}
NAMESPACE = uuid.UUID("5d0a4c3e-8f55-4e0e-9d57-0c1b7f6a2b11")


class Refused(Exception):
    """What was sent cannot be taken. ``field`` names the part, the message says what is wrong with it and what to do."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Heard:
    """What the script is told: how many bytes of its spool the lab has, and whether somebody asked the run to stop."""

    offset: int
    stop: bool


@dataclass(frozen=True)
class Opening:
    """How a script introduces its run. ``config`` is whatever it wants people to see of its settings (a JSON object)."""

    key: uuid.UUID  # made by the script, kept beside its spool: opening twice gives the same run
    name: str
    trainer: str
    policy: str
    task: str
    total_steps: int
    config: dict[str, Any]


def open_run(team: Team, user: User | None, opening: Opening) -> tuple[Run, int]:
    """The run of that key, made when there is none, and how many bytes of its spool the lab has. Raises Refused."""
    check(opening)
    key = pk_of(team, opening.key)
    with transaction.atomic():
        Team.objects.select_for_update().get(pk=team.pk)
        run = Run.objects.of(team).filter(pk=key).first()
        if run is None:
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
            run.started_at = timezone.now()
            run.name, run.trainer = opening.name.strip() or "Outside run", opening.trainer
            run.policy, run.task, run.total_steps = opening.policy or "unknown", opening.task or "unknown", opening.total_steps
            run.spec = {"outside": opening.config, "training": {"trainer": opening.trainer, "max_steps": opening.total_steps}}
            run.save(force_insert=True)
            run.folder.mkdir(parents=True, exist_ok=True)
            record("run.launch", run, actor=user, recipe="outside", trainer=run.trainer, policy=run.policy)
    listen(run)
    return run, size(run)


def pk_of(team: Team, key: uuid.UUID) -> uuid.UUID:
    """Of the run with that key: two teams may choose the same one and learn nothing of each other."""
    return uuid.uuid5(NAMESPACE, f"{team.pk}/{key}")


def check(opening: Opening) -> None:
    for field, text, limit in (("name", opening.name, 100), ("policy", opening.policy, 200), ("task", opening.task, 100)):
        if len(text) > limit or "\0" in text:
            raise Refused(field, f"at most {limit} characters, none of them a null character")
    if opening.trainer not in TRAINERS:
        raise Refused("trainer", f"one of {', '.join(TRAINERS)}")
    if not 0 <= opening.total_steps < 2**31:
        raise Refused("total_steps", "a whole number from 0 (unknown)")
    text = json.dumps(opening.config)
    if len(text) > CONFIG_BYTES or "\\u0000" in text:
        raise Refused("config", f"at most {CONFIG_BYTES >> 10} KiB of JSON without null characters")


def receive(run: Run, offset: int, data: bytes) -> Heard:
    """Appends whole lines of a spool that begin at byte ``offset``, and stores them. Raises Refused.

    A piece that does not begin where the spool ends is not stored: of two senders with the same piece one appends it, and both go on after it.
    """
    if len(data) > PIECE_BYTES:
        raise Refused("body", f"send at most {PIECE_BYTES >> 20} MiB at once")
    check_lines(data)
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=run.pk)  # one sender at a time
        end = size(run)
        if end + len(data) > SPOOL_BYTES:
            raise Refused("body", f"a run may send {SPOOL_BYTES >> 30} GiB; start another one")
        if offset == end:
            with (run.folder / spool.SPOOL).open("ab") as file:
                end += file.write(data)
    listen(run)
    store(run)
    return Heard(end, run.status in (Status.STOPPING, Status.STOPPED))


def check_lines(data: bytes) -> None:
    """Raises Refused for the first line that is no event, or one a script may not send."""
    if data and not data.endswith(b"\n"):
        raise Refused("body", "the last line is not complete: send whole lines, each ended by a newline")
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        found = spool.parse(line, 0)
        if found.event is None:
            raise Refused(f"body.{number}", f"line {number} is not an event: {found.error[:200]}")
        if not isinstance(found.event, ALLOWED):
            name = found.event.__struct_config__.tag
            raise Refused(f"body.{number}", f"line {number} is an event that a script outside may not send: {name}")


def size(run: Run) -> int:
    """Bytes of the run's spool; what a writer that died in the middle of a line left is cut off."""
    path = run.folder / spool.SPOOL
    path.parent.mkdir(parents=True, exist_ok=True)
    spool.cut_torn_tail(path)
    return path.stat().st_size if path.exists() else 0


def listen(run: Run) -> None:
    """The script lives: its run goes on unless it has ended."""
    before = run.status
    run.heard(OWNER, SILENCE_SECONDS)
    run.refresh_from_db()
    if run.status != before:
        live.publish_state(run)


def store(run: Run) -> None:
    """Everything that was appended, and the end of the run if its script said so. A new attempt takes an ended run up again."""
    while (batch := ingest(run)) is not None:
        begun = max((event.attempt for event, _ in batch.started), default=0)
        if begun and run.status not in ACTIVE:
            run.reopen(OWNER, SILENCE_SECONDS)
        if batch.finished and (last := batch.finished[-1]).attempt >= begun:
            run.end(OWNER, ENDS[last.outcome], last.error[:2000])
            live.publish_state(run)
