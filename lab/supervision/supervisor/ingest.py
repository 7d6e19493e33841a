"""From the spool into PostgreSQL, exactly once: a batch of lines and the offset after it are one transaction.

1. The run's row moves from the old offset to the new one; if it is not at the old one, somebody else has stored these lines.
2. Prompts, rollouts and their arrays (binary COPY), metrics, attempts, checkpoints and warnings follow in the same transaction.
3. After the commit, open pages are told. A killed ingestor, a lost connection or a failed COPY leaves neither rows nor offset behind.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from django.db import DataError, IntegrityError, connection, transaction
from django.db.models import F

from lab.data.loop import human_reward
from lab.lib.garbage_collection import freeze_loaded
from lab.rollouts.trajectories.models import Rollout
from lab.supervision.supervisor import prompts
from lab.supervision.supervisor.attempts import record_attempts, to_utc_datetime
from lab.supervision.supervisor.batch import SpoolBatch, collect_batch
from lab.supervision.supervisor.read_ahead import ReadAhead
from lab.supervision.supervisor.rows import ROLLOUT_COLUMNS, TOKEN_COLUMNS, rollout_rows, token_rows
from lab.training.edits.delivery import record_edited_events
from lab.training.runs import live, metrics
from lab.training.runs.models import Attempt, Checkpoint, Run
from lab.training.runs.spool_files import is_spool_here
from trainers.contract import spool
from trainers.contract.events import Saved

log = logging.getLogger(__name__)

AHEAD = ReadAhead()
freeze_before_first_batch = cache(freeze_loaded)
LIMIT = 8 << 20  # bytes of spool in a transaction: about two thousand rollouts of 256 tokens


class LostRace(Exception):
    """The database is at another offset: another ingestor has stored these lines, or it lost earlier ones in a crash. Nothing was written."""


def ingest_spool(run: Run, limit: int = LIMIT, samples: Mapping[str, float] | None = None, reached: int = 0) -> SpoolBatch | None:
    """Stores the whole lines after ``run.ingested``, about ``limit`` bytes of them; None when there is nothing to store.

    Nothing either where the spool goes on in another machine's file. ``run`` is brought up to date. ``samples`` are measurements of the machine,
    stored with the newest step of the batch, if it has one. ``reached``: the offset up to which batches were published before. One that ends there
    again was lost with the database's last commits; pages have its lines and do not ask for it, so it takes no samples, which no line holds.
    """
    if not is_spool_here(run):
        return None
    freeze_before_first_batch()
    path = run.folder / spool.SPOOL
    lines = AHEAD.take(path, run.ingested - run.spool_begin, limit)
    if lines:
        AHEAD.start(path, lines[-1].end, limit)
    for line in lines if run.spool_begin else ():
        line.end += run.spool_begin
    while lines:
        batch = collect_batch(run, lines)
        if samples and batch.to > reached:
            batch.add_samples(dict(samples))
        try:
            stored = write_batch(batch)
        except LostRace:
            run.refresh_from_db()
            return ingest_spool(run, limit, samples, reached)
        except (DataError, IntegrityError) as error:
            if len(lines) > 1:
                lines = lines[: len(lines) // 2]
            else:
                lines = [spool.Line(None, lines[0].end, str(error).strip())]  # the one line the database refuses
            continue
        publish_batch(batch, stored)
        return batch
    return None


def write_batch(batch: SpoolBatch) -> metrics.Points:
    """The transaction. Returns the points of the newest attempt that were new. Raises LostRace."""
    run, count = batch.run, len(batch.rollouts)
    with transaction.atomic(), connection.cursor() as cursor:
        now, ids = begin_batch(cursor, count)
        fields = {**batch.fields, "ingested": batch.to, "progress_at": now}
        if ids:
            fields["last_rollout"] = ids[-1]
        if not Run.objects.same_row(run).filter(ingested=batch.since, spool_token=run.spool_token).update(**fields, rollouts=F("rollouts") + count):
            raise LostRace
        new_prompts = copy_rollouts(cursor, batch, ids) if batch.rollouts else {}
        if batch.shadows:
            add_shadow_rewards(cursor, batch)
        record_attempts(batch)
        if hidden := mark_superseded_rollouts(batch):
            Run.objects.same_row(run).update(rollouts=F("rollouts") - hidden)
        stored: metrics.Points = {}
        for attempt in sorted(batch.points):
            stored = metrics.append_metric_points(cursor, run.pk, attempt, batch.points[attempt], batch.to)
        record_saved(batch)
        record_edited_events(run, batch.edited)
        if batch.questions:
            keys, asked_about = prompts.resolve_prompt_ids(cursor, run.team_id, batch.questions)
            human_reward.record_questions(run, batch.questions, keys)
            new_prompts |= asked_about
        record_notices(cursor, batch)
    prompts.remember_prompts(run.team_id, new_prompts)
    for name, value in fields.items():
        setattr(run, name, value)
    run.rollouts += count - hidden
    return stored


def begin_batch(cursor: Any, count: int) -> tuple[datetime, list[int]]:
    """(what the database's clock says, ids for ``count`` rollouts, ascending). The ids come as one text: rows take several times as long.

    The commit need not wait for the disk. Should the database's machine die before the log is written, rows and offset are lost together, and
    the lines are stored again: the spool has them. Whatever is committed later is written after this transaction, so nothing can refer to
    rollouts that are lost.
    """
    cursor.execute(
        "SELECT set_config('synchronous_commit', 'off', true), statement_timestamp(),"
        " (SELECT string_agg(nextval('trajectories_rollout_id_seq')::text, ' ') FROM generate_series(1, %s))",
        [count],
    )
    _, now, ids = cursor.fetchone()
    return now, [int(key) for key in (ids or "").split()]


def copy_rollouts(cursor: Any, batch: SpoolBatch, ids: list[int]) -> dict[bytes, int]:
    """Returns the prompts that are new, by digest."""
    run = batch.run
    keys, new_prompts = prompts.resolve_prompt_ids(cursor, run.team_id, [event for event, _ in batch.rollouts])
    with connection.wrap_database_errors:
        with cursor.copy(f"COPY trajectories_rollout ({ROLLOUT_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
            for piece in rollout_rows(run.pk, batch.rollouts, ids, keys):
                copy.write(piece)
        with cursor.copy(f"COPY trajectories_rollouttokens ({TOKEN_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
            for piece in token_rows(batch.rollouts, ids):
                copy.write(piece)
    return new_prompts


SHADOWS = """
UPDATE trajectories_rollout AS stored SET rewards = stored.rewards || new.rewards
FROM unnest(%s::int[], %s::int[], %s::int[], %s::smallint[], %s::jsonb[]) AS new(attempt, step, group_index, sample, rewards)
WHERE stored.run_id = %s AND stored.attempt = new.attempt AND stored.step = new.step AND stored.group_index = new.group_index
    AND stored.sample = new.sample AND stored.phase = 'train'
"""


def add_shadow_rewards(cursor: Any, batch: SpoolBatch) -> None:
    """To the rewards of rollouts that are stored, which the line of each stands before; the columns of a rollout in one row."""
    found: dict[tuple[int, int, int, int], dict[str, float | None]] = defaultdict(dict)
    for event in batch.shadows:
        for group, sample, score in event.scores:
            found[event.attempt, event.step, group, sample][event.name] = score
    columns = [list(column) for column in zip(*found, strict=True)] or [[], [], [], []]
    cursor.execute(SHADOWS, [*columns, [json.dumps(rewards) for rewards in found.values()], batch.run.pk])


def mark_superseded_rollouts(batch: SpoolBatch) -> int:
    """Marks rollouts of earlier attempts whose step is done again; returns how many. The newest attempt of a step is the one that counts."""
    earlier = Rollout.objects.filter(run=batch.run, superseded=False)
    hidden = 0
    for event, _ in batch.started:
        if event.attempt > 1:
            hidden += earlier.filter(attempt__lt=event.attempt, step__gt=event.from_step).update(superseded=True)
    # Steps up to the checkpoint are not superseded by the start, but may be measured again: an evaluation repeated after a resume.
    again = {(event.attempt, event.step, event.phase) for event, _ in batch.rollouts if event.attempt > 1}
    if again:
        starts = dict(Attempt.objects.filter(run=batch.run).values_list("number", "from_step"))
        for attempt, step, phase in again:
            if step <= starts.get(attempt, 0):
                hidden += earlier.filter(attempt__lt=attempt, step=step, phase=phase).update(superseded=True)
    return hidden


def record_saved(batch: SpoolBatch) -> None:
    rows = [
        Checkpoint(
            run=batch.run,
            attempt=event.attempt,
            step=event.step,
            path=event.path,
            bytes=event.bytes,
            final=isinstance(event, Saved),
            created_at=to_utc_datetime(event.time),
        )
        for event in batch.saved
    ]
    Checkpoint.objects.bulk_create(rows, ignore_conflicts=True)


def record_notices(cursor: Any, batch: SpoolBatch) -> None:
    """Warnings and skipped lines show in the log where it stands now."""
    run, texts = batch.run, defaultdict[int, list[str]](list)
    for event in batch.warned:
        texts[event.attempt].append(f"warning (step {event.step}): {event.message}\n")
    for reason in batch.broken[:20]:
        texts[batch.value("attempt")].append(f"warning: {reason}\n")
    for attempt, told in texts.items():  # a statement each: a spool may hold a hundred thousand warnings
        cursor.execute(
            'INSERT INTO runs_logchunk (run_id, attempt, "offset", notice, text) VALUES (%s, %s, %s, true, %s)'
            ' ON CONFLICT (run_id, attempt, "offset", notice) DO UPDATE SET text = runs_logchunk.text || EXCLUDED.text',
            [run.pk, attempt, run.log_ingested if attempt == run.attempt else 0, "".join(told)],
        )


def publish_batch(batch: SpoolBatch, points: metrics.Points) -> None:
    run = batch.run
    if batch.started:
        live.publish_delta(run, live.build_reset_message(run))
        return
    logs = bool(batch.warned or batch.broken)
    live.publish_delta(run, live.build_delta_message(run, batch.since, points, live.rollout_span(*batch.span), logs))
