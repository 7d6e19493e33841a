"""Dropping what the teams' rules no longer keep, at night and in pieces.

Each piece is a transaction that holds the run's row and the rule's: a worker that is killed leaves whole pieces behind and the next round goes on
after them. Of several workers one acts at a time.

The spool is not read again for what was dropped: ``Run.ingested`` stays.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection, transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest, Now

from lab.lib.clock import database_now
from lab.rollouts.trajectories.keepers import hold_for_dropping
from lab.rollouts.trajectories.models import HAS_NO_TREE, DroppedRollouts, Rollout, RolloutTokens
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Run
from lab.watching.retention.models import RolloutRule
from lab.watching.retention.selection import LEAVES_BY_STEP, build_parameters, find_named_rollouts, select_ended_runs, write_pointed_rollouts
from trainers.contract.arrays import PackError, unpack_array

LOCK = 0x6B_65_65_70
NIGHT = timedelta(hours=1)  # after midnight, UTC
PIECE = 10_000  # rollouts of a transaction
SECONDS = 3.0  # of a round; the next one goes on

Named = tuple[Collection[int], Collection[int]]

CANDIDATES = """
WITH {pointed}, kept AS MATERIALIZED (
    SELECT DISTINCT own.step, own.phase, own.group_index FROM pointed
    JOIN trajectories_rollout AS own ON own.id = pointed.id WHERE own.run_id = %(run)s
)
SELECT rollout.id, rollout.step, rollout.group_index, rollout.superseded FROM trajectories_rollout AS rollout {join}
WHERE rollout.run_id = %(run)s AND rollout.step >= %(reached)s AND {leaves}
    AND NOT EXISTS (
        SELECT FROM kept WHERE kept.step = rollout.step AND kept.phase = rollout.phase AND kept.group_index = rollout.group_index
    )
ORDER BY rollout.step, rollout.group_index, rollout.sample LIMIT %(most)s
"""
TOKENS_JOIN = "JOIN trajectories_rollouttokens AS stored ON stored.rollout_id = rollout.id AND octet_length(stored.ids) > 0"


def drop_due_rollouts() -> None:
    """One round of about SECONDS. Raises database errors; the caller comes again later."""
    until, now = time.monotonic() + SECONDS, database_now()
    tonight = now.replace(hour=0, minute=0, second=0, microsecond=0) + NIGHT
    if now < tonight:
        return
    waiting = Q(looked_at=None) | Q(looked_at__lt=tonight)
    for rule in RolloutRule.across_teams.filter(waiting).exclude(tokens_days=None, rollouts_days=None).select_related("team"):
        named = find_named_rollouts(rule.team)
        for run in list_due_runs(rule, now, tonight):
            more = True
            while more:
                if time.monotonic() > until:
                    return
                more = drop_piece(rule.pk, run, now, named)
        with transaction.atomic():
            if hold_lock() and not list_due_runs(rule, now, tonight):
                RolloutRule.objects.same_row(rule).filter(waiting).update(looked_at=Now())


def list_due_runs(rule: RolloutRule, now: datetime, tonight: datetime) -> list[UUID]:
    """Runs that the rule reaches and tonight's round has not been through."""
    days = min(days for days in (rule.tokens_days, rule.rollouts_days) if days is not None)
    fresh = DroppedRollouts.objects.filter(run__team=rule.team_id, looked_at__gte=tonight).values("run")
    return list(select_ended_runs(rule, days, now).exclude(pk__in=fresh).order_by("number").values_list("pk", flat=True))


def hold_lock() -> bool:
    """Until the transaction ends; False where another worker has it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        return bool(cursor.fetchone()[0])


def drop_piece(rule_id: int, run_id: UUID, now: datetime, named: Named) -> bool:
    """The next rollouts of the run, or token arrays, at most PIECE; whether there may be more. False, too, where another worker acts, a queue is
    being made of the team's rollouts, or the rule or the run has changed meanwhile.
    """
    with transaction.atomic():
        if not hold_lock():
            return False
        rule = RolloutRule.across_teams.select_for_update(of=("self",)).select_related("team").filter(pk=rule_id).first()
        if rule is None or not hold_for_dropping(rule.team_id):
            return False
        # Ingest, a resume and the bin want the run's row too, and wait until this piece is through.
        lost = next((what for what, days in list_reached_parts(rule) if select_run(rule, run_id, days, now)), None)
        if lost is None:
            return False
        run = Run.across_teams.get(pk=run_id)
        state, _ = DroppedRollouts.objects.get_or_create(run=run)
        found = find_candidates(rule, run_id, state.reached, named, tokens=lost == "tokens")
        rows = cut_at_group(found)
        if rows:
            drop_rows(run, rows, lost)
        ended = len(found) < PIECE
        fields: dict[str, Any] = {"looked_at": Now(), "reached": 0} if ended else {"reached": rows[-1][1]}
        if rows:
            fields |= {lost: F(lost) + len(rows), "dropped_at": Now()}
        DroppedRollouts.objects.filter(run=run).update(**fields)
        return not ended


def list_reached_parts(rule: RolloutRule) -> list[tuple[str, int]]:
    """What a run may lose and days after its end; whole rollouts first, whose token arrays go with them."""
    parts = (("rollouts", rule.rollouts_days), ("tokens", rule.tokens_days))
    return [(what, days) for what, days in parts if days is not None]


def select_run(rule: RolloutRule, run_id: UUID, days: int, now: datetime) -> bool:
    """Whether the rule reaches the run after ``days``; its row stays locked."""
    return select_ended_runs(rule, days, now).select_for_update(of=("self",)).filter(pk=run_id).first() is not None


def find_candidates(rule: RolloutRule, run_id: UUID, reached: int, named: Named, *, tokens: bool) -> list[tuple[int, int, int, bool]]:
    """(id, step, group, superseded) of the next PIECE rollouts that nothing keeps, in order."""
    query = CANDIDATES.format(pointed=write_pointed_rollouts(), leaves=LEAVES_BY_STEP, join=TOKENS_JOIN if tokens else "")
    with connection.cursor() as cursor:
        cursor.execute(query, {**build_parameters(rule, named), "run": run_id, "reached": reached, "most": PIECE})
        return list(cursor.fetchall())


def cut_at_group(rows: list[tuple[int, int, int, bool]]) -> list[tuple[int, int, int, bool]]:
    """Without the group that a full piece may have cut in two, unless it is alone in it."""
    if len(rows) < PIECE:
        return rows
    last = rows[-1][1:3]
    return [row for row in rows if row[1:3] != last] or rows


def drop_rows(run: Run, rows: list[tuple[int, int, int, bool]], lost: str) -> None:
    ids = [row[0] for row in rows]
    if lost == "tokens":
        drop_token_arrays(ids)
    else:
        Rollout.across_teams.filter(pk__in=ids).only("pk").delete()  # with words, token arrays and vectors
        counted = sum(not superseded for _, _, _, superseded in rows)
        Run.objects.same_row(run).update(rollouts=Greatest(F("rollouts") - counted, 0))
    details: dict[str, Any] = {lost: len(rows), "first_step": rows[0][1], "last_step": rows[-1][1]}
    record_audit_entry("rollouts.drop", run, **details)


def drop_token_arrays(ids: list[int]) -> None:
    """A rollout of several authors keeps an empty row, which says that its turns are in code points now, as those of rollouts that came without
    tokens are.
    """
    spoken = Rollout.across_teams.filter(pk__in=ids).exclude(HAS_NO_TREE, turns=[]).only("pk", "turns", "nodes").in_bulk()
    stored = RolloutTokens.across_teams.filter(pk__in=list(spoken)).values_list("pk", "lengths")
    emptied = []
    for pk, lengths in stored:
        if spoken[pk].nodes or any(turn[0] != "assistant" for turn in spoken[pk].turns):
            spoken[pk].turns = count_code_points(spoken[pk].turns, bytes(lengths))
            spoken[pk].nodes = move_nodes(spoken[pk].nodes, bytes(lengths))
            emptied.append(pk)
    Rollout.across_teams.bulk_update([spoken[pk] for pk in emptied], ["turns", "nodes"], batch_size=1000)
    RolloutTokens.across_teams.filter(pk__in=ids).delete()
    RolloutTokens.across_teams.bulk_create([RolloutTokens(rollout_id=pk) for pk in emptied], batch_size=1000)


def count_code_points(turns: list[list[Any]], lengths: bytes) -> list[list[Any]]:
    """Turns in tokens as turns in code points; of damaged arrays none, which shows the completion as one text."""
    try:
        edges = np.concatenate([[0], np.cumsum(unpack_array(lengths).astype(np.int64))])
    except PackError:
        return []
    places = [min(max(int(place), 0), len(edges) - 1) for _, *span in turns for place in span]
    counted = [int(edges[place]) for place in places]
    return [[turn[0], counted[2 * at], counted[2 * at + 1]] for at, turn in enumerate(turns)]


def move_nodes(nodes: list[dict[str, Any]], lengths: bytes) -> list[dict[str, Any]]:
    """Nodes with their places in code points; of damaged arrays without places."""
    placed = [node for node in nodes if node.get("start", -1) >= 0]
    counted = count_code_points([["", node["start"], node["end"]] for node in placed], lengths)
    places = {id(node): {"start": start, "end": end} for node, (_, start, end) in zip(placed, counted, strict=False)}
    return [node | places.get(id(node), {"start": -1, "end": -1}) for node in nodes]
